// Proof: trains one configuration on different numbers of a job's ranks and records a digest of each tensor after each
// step, so that two runs can be compared. One per rank, owned by the prove command; borrows communicator and data.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/training/step/trainer.h"

namespace lockstep {

// The record of a run, on rank 0.
struct ProofRecord {
  int64_t first = 0;  // the step after which the run began: 0, or the step that it resumed from
  std::vector<std::map<std::string, Hash128>> tensors;  // after steps first, first + 1, ...: a digest of each tensor
  std::vector<double> losses;                           // of steps first + 1, ...
  int64_t skipped = 0;                                  // steps without a finite gradient
  Hash128 digest;  // of the state after the last step, as a checkpoint would have it
  std::string backend;
  double seconds = 0;
};

// The first step after which two runs differ.
struct ProofDifference {
  int64_t step = 0;
  std::string tensor;          // the first by name, parameters before moments; empty: only the loss or counts differ
  size_t others = 0, all = 0;  // number of further tensors that differ; number of all tensors
  std::string text;            // a description without the names of the runs
};
std::optional<ProofDifference> first_difference(const ProofRecord& a, const ProofRecord& b);

// One element that differs.
struct ProofElement {
  int64_t index = 0;  // in the flattened tensor
  Shape shape;
  float a = 0, b = 0;
};
// The first element of `tensor` that differs in bits: `a` is the value in the checkpoint, `b` in the trainer; nullopt
// if all are equal. Reads and compares a bounded number of elements at a time. Collective.
std::optional<ProofElement> first_element(const Trainer& trainer, Communicator& comm, const Checkpoint& checkpoint,
                                          const std::string& tensor);
// The largest relative difference of a parameter tensor, max |a - b| / max |a|, and the tensor's name. NaN if a value
// is not finite. Collective.
std::pair<double, std::string> largest_relative_difference(const Trainer& trainer, Communicator& comm,
                                                           const Checkpoint& checkpoint);
// "0.1 (0x3dcccccd)"
std::string bits_text(float v);
// "element 517, [8, 5] of [64, 64]"
std::string element_text(const ProofElement& e);

class Proof {
 public:
  // `group` receives the communicator of the ranks that train. The caller destroys it after an exception has left
  // train(), so that the rank with the error reports it before the other ranks notice that this rank is missing.
  Proof(Communicator& world, const Datasets& data, std::unique_ptr<Communicator>& group)
      : world_(world), data_(data), group_(group) {}

  struct Span {
    std::string from;             // the checkpoint of step `first`; empty: initial values
    int64_t first = 0, last = 0;  // steps done before and after
  };
  using AtEnd = std::function<void(Trainer&, Communicator&)>;
  // Trains on the first `ranks` ranks of the world. All ranks synchronise after each step, so that the idle ones do not
  // wait longer than one step. `at_end` runs on the ranks that train. Collective.
  ProofRecord train(const Settings& settings, int ranks, const Span& span, const AtEnd& at_end = {});

  std::function<void()> after_step = {};

 private:
  Communicator& world_;
  const Datasets& data_;
  std::unique_ptr<Communicator>& group_;
};

}  // namespace lockstep
