// Sentinel: ranks that hold copies of the same state compare them while a run goes on, and say whose memory or
// arithmetic went wrong. Owned by the trainer or a loop of one's own; borrows both communicators.
#pragma once

#include <vector>

#include "comm/axis.h"
#include "core/state/state.h"

namespace lockstep {

// digest_of each entry, of a box under name_of_region() in its own order, by the current stream's compute threads; by
// threads of its own where that is a GPU's. Values of 16 bits count as the fp32 ones that they equal.
std::vector<Hash128> digests_of(const std::vector<StateEntry>& entries);

class Sentinel {
 public:
  // Along `copies` the ranks hold the same slices of the same tensors; `all` has every rank that verifies, which end
  // together.
  Sentinel(const Axis& copies, const Axis& all) : copies_(copies), all_(all) {}

  // `state` after step `step`, on every rank the same slices. Exchanges one 128-bit value a rank, and those of single
  // tensors only where that differs. Then throws ExitCode::kRanksDisagree on the first rank that differs from most
  // others (where most agree: with two ranks nobody can tell), naming ranks, tensors, step and the last step found
  // equal; the other ranks throw a secondary error. Collective.
  void verify(int64_t step, const std::vector<StateEntry>& state) { verify(step, state, digests_of(state)); }
  // The same with digests that were taken before; of the entries only names and offsets are read.
  void verify(int64_t step, const std::vector<StateEntry>& state, const std::vector<Hash128>& digests);

  // The last step after which all ranks were found equal; -1: none yet.
  int64_t last_equal_step() const { return equal_; }

 private:
  [[noreturn]] void report(int64_t step, const std::vector<StateEntry>& state, const std::vector<Hash128>& digests);

  const Axis copies_, all_;
  int64_t equal_ = -1;
};

}  // namespace lockstep
