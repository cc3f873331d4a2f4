// Proof: trains one configuration on changing parts of a world and remembers each run well enough to say where two of
// them differ. One on each rank, owned by the prove command; borrows communicator and data.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/training/trainer.h"

namespace lockstep {

// What rank 0 keeps of a run.
struct ProofRecord {
  int64_t first = 0;                                    // the step it began after: 0, or where it was resumed
  std::vector<std::map<std::string, Hash128>> tensors;  // after steps first, first + 1, ...: a digest of each tensor
  std::vector<double> losses;                           // of steps first + 1, ...
  int64_t skipped = 0;                                  // steps without a finite gradient
  Hash128 digest;                                       // after the last step; that of a checkpoint then
  std::string backend;
  double seconds = 0;
};

// The first step after which two runs differ.
struct ProofDifference {
  int64_t step = 0;
  std::string tensor;          // the first by name, parameters before moments; empty: the loss, or counts, alone
  size_t others = 0, all = 0;  // further tensors that differ then; tensors there are
  std::string text;            // in words, without the names of the runs
};
std::optional<ProofDifference> first_difference(const ProofRecord& a, const ProofRecord& b);

// One element that differs.
struct ProofElement {
  int64_t index = 0;  // in the flattened tensor
  Shape shape;
  float a = 0, b = 0;
};
// The first element of `tensor` that differs in bits: `a` in the checkpoint, `b` in the trainer; nothing where all are
// equal. Collective. Reads and compares a bounded stretch at a time.
std::optional<ProofElement> first_element(const Trainer& trainer, Communicator& comm, const Checkpoint& checkpoint,
                                          const std::string& tensor);
// Of each parameter tensor, the largest |a - b| in relation to its largest |a|; of these the largest, and whose it is.
// NaN where a value is not finite. Collective.
std::pair<double, std::string> largest_relative_difference(const Trainer& trainer, Communicator& comm,
                                                           const Checkpoint& checkpoint);
// "0.1 (0x3dcccccd)"
std::string bits_text(float v);
// "element 517, [8, 5] of [64, 64]"
std::string element_text(const ProofElement& e);

class Proof {
 public:
  // `group` holds the ranks that train, and outlives what an error unwinds: the rank whose error it is reports it
  // before its peers miss it.
  Proof(Communicator& world, const Datasets& data, std::unique_ptr<Communicator>& group)
      : world_(world), data_(data), group_(group) {}

  struct Span {
    std::string from;             // checkpoint of step `first`; empty: from the beginning
    int64_t first = 0, last = 0;  // steps done before and after
  };
  using AtEnd = std::function<void(Trainer&, Communicator&)>;
  // The world's first `ranks` ranks train; the others wait with them after each step, so that nobody waits for longer
  // than one. `at_end` runs on those that train. Collective.
  ProofRecord train(const Settings& settings, int ranks, const Span& span, const AtEnd& at_end = {});

  std::function<void()> after_step = {};

 private:
  Communicator& world_;
  const Datasets& data_;
  std::unique_ptr<Communicator>& group_;
};

}  // namespace lockstep
