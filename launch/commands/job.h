// Job: the setup that is common to all commands that run a model on several ranks: it opens the data, starts the ranks
// and reports errors. Owned by the command; borrows the settings.
#pragma once

#include <functional>
#include <memory>

#include "launch/arguments/command_line.h"
#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "launch/world/world.h"

namespace lockstep {

// Loads the configuration of the arguments `FILE.yaml [key.path=value ...] [--ranks N]`, for the number of ranks that
// the job will have. Starts MPI under a launcher. `trains`: for a run, which --resume or run.resume may continue.
std::unique_ptr<Settings> settings_of_file(const App& app, const Arguments& arguments, bool trains = false);

class Job {
 public:
  // `asked_ranks`: the value of --ranks; 0: as many as the launcher started, or one.
  Job(Settings& settings, int asked_ranks);

  WorldOptions& world() { return world_; }  // may be changed before run()
  // Runs `body` on every rank with the datasets, which are opened once per process, and waits for all ranks at the end.
  // If GPU memory runs out, the error says which keys would help. Returns the exit code of the first error, or 0.
  int run(std::string_view name, const std::function<void(Communicator&, const Datasets&)>& body);
  // The same of a body that opens the data itself, once it is there.
  int run_unopened(std::string_view name, const std::function<void(Communicator&, SharedData&)>& body);

 private:
  const Settings& settings_;
  SharedData data_;
  WorldOptions world_;
};

}  // namespace lockstep
