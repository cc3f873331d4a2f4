// Reference: what tasks of preferences compare their model with, which is the model as training begins, with its
// adapters if it has any. It is not kept: the logarithms of the probabilities that it gives the answers of all pairs
// are computed once, in the precision of the run and without dropout, and become a tensor of the samples (kReference).
// Owned by a Trainer, or by the command that measures; shares the datasets.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "data/streams/open_dataset.h"
#include "data/streams/with_values.h"
#include "launch/training/step/placed_task.h"

namespace lockstep {

class Reference {
 public:
  // Samples that are pairs get the tensor; others stay as they are.
  explicit Reference(const Datasets& data);
  const Datasets& data() const { return data_; }
  // Whether the task reads values that are not known yet.
  bool is_missing(const Task& task) const;
  // The file, such as of a run directory, that has the values; with `keeps` it is written.
  void set_file(const std::string& path, bool keeps) { path_ = path, keeps_ = keeps; }

  // The values by the parameters that `placed` has. Writes info().reference and the file. Collective.
  void compute(PlacedTask& placed, Communicator& comm);
  // For what goes on from a checkpoint, before its parameters are loaded: what the file has, or else computed by what
  // the run began with, which `placed` gets. Throws ExitCode::kBadData where that is another model than the one that
  // the checkpoint names. Does nothing for a checkpoint of step 0. Collective.
  void compute_for(const Checkpoint& from, PlacedTask& placed, const Settings& settings, Communicator& comm);

 private:
  // What the values of a part are a function of. Another `version` names values that were kept in another way.
  static constexpr const char* kVersion = "values by number\n";
  std::string key(const std::string& model, const PlacedTask& placed, const WithValues& part,
                  const char* version = kVersion) const;
  void measure(PlacedTask& placed, Communicator& comm);
  bool read(const std::string& model, const PlacedTask& placed, Communicator& comm);
  void write(const PlacedTask& placed) const;

  Datasets data_;
  std::shared_ptr<WithValues> train_, validation_;  // null: not pairs, or not there
  std::string path_;
  bool keeps_ = false;
};

}  // namespace lockstep
