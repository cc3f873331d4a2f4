// Recheck: finds a processor that computes wrong gradients. Every n-th step, before the update, each rank computes a
// micro-batch of another rank once more, of another machine where each has as many consecutive ranks, and adds up that
// rank's part of one bucket of gradients, of each in turn; both compare hashes of the results, which are the same bits
// on every processor. Owned by the trainer; borrows the communicator.
#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/axis.h"
#include "core/base/hash.h"
#include "core/base/partition.h"
#include "sharding/gradient_bucket.h"

namespace lockstep {

// Hashes of a micro-batch's gradients, as a GradientSink takes them.
class GradientHashes {
 public:
  static constexpr int64_t kBlock = 16384;  // elements that one hash stands for
  struct Gradient {
    std::string name;
    std::vector<Hash128> blocks;
  };

  void add(const std::string& name, const Tensor& gradient);
  void clear() { tensors_.clear(); }
  Hash128 sum() const;
  // In the order in which backward completed them.
  const std::vector<Gradient>& tensors() const { return tensors_; }
  std::string text() const;  // of_text() reads it
  static GradientHashes of_text(const std::string& text);
  // The first block, in this order, that differs in `other`: tensor and first element. Empty where none does.
  std::optional<std::pair<std::string, int64_t>> first_difference(const GradientHashes& other) const;

 private:
  std::vector<Gradient> tensors_;
};

class Recheck {
 public:
  // Of several ranks. Steps count from 1; every `every`-th is checked.
  Recheck(const Axis& ranks, MicroSchedule schedule, int64_t every);

  bool is_due(int64_t step) const { return step % every_ == 0; }
  // In such a step, of its micro_count micro-batches: the one that this rank computes for another, and which of its own
  // another computes; -1: it has none.
  struct Turn {
    int64_t checked = 0, watched = -1;
  };
  Turn turn(int64_t step, int64_t micro_count) const { return turn_of(step, micro_count, ranks_.index); }

  // In such a step, of `buckets`: the one whose sums are compared, and by rank, whose part of it each forms again.
  size_t bucket(int64_t step, size_t buckets) const { return static_cast<size_t>(step / every_) % buckets; }
  std::vector<int> owners(int64_t step) const;

  // What this rank computed for itself and for the rank that it checks, and how all ranks together compute one thing
  // again: a micro-batch by its number, sums by the number of the rank whose part they are.
  struct Results {
    GradientHashes own, checked;
    std::function<void(int64_t what, const GradientSink& sink)> again;
  };
  // After the step's backward passes and before its update: gradients of micro-batches by that turn, and sums, where
  // they were formed again. `last`: the step has no other backward passes that are compared. Throws
  // ExitCode::kRanksDisagree on the rank that computes wrongly, by most ranks' results, naming tensor, element and
  // values as far as the fault can be repeated; a secondary error elsewhere. Collective.
  void compare(int64_t step, int64_t micro_count, const Results& gradients, const Results* sums, bool last);

  // The last step that was found good by this process, or 0 where it began with that; -1: none was.
  int64_t last_good_step() const { return good_; }
  bool failed() const { return failed_; }
  // Did this rank compute wrongly when it did so again, too?
  bool miscomputes() const { return miscomputes_; }
  void begin(int64_t done) {  // `done` steps are behind a run that begins or goes on
    if (done == 0) good_ = std::max<int64_t>(good_, 0);
  }

 private:
  int shift(int64_t step) const;  // from a rank to the one that it checks
  int owner_of(int64_t step, int checker) const { return (checker + shift(step)) % ranks_.size; }
  Turn turn_of(int64_t step, int64_t micro_count, int rank) const;
  enum class Kind { kGradients, kSums };
  void compare(int64_t step, int64_t micro_count, Kind kind, const Results& results);
  [[noreturn]] void report(int64_t step, int owner, int checker, int64_t micro, Kind kind, const Results& results);

  const Axis ranks_;
  const MicroSchedule schedule_;
  const int64_t every_;
  int nearest_ = 1, shifts_ = 1;  // the shifts that are taken in turn: from `nearest_` on
  int64_t good_ = -1;
  bool failed_ = false, miscomputes_ = false;
};

}  // namespace lockstep
