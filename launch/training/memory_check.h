// MemoryCheck: finds state that changes where nothing wrote it, between the update of a step and the next one: a fault
// of the memory, of a device's or the host's, or a stray write (verify.memory). Owned by the trainer.
#pragma once

#include <cstdint>
#include <vector>

#include "core/state/state.h"

namespace lockstep {

class MemoryCheck {
 public:
  explicit MemoryCheck(int64_t every) : every_(every) {}
  bool is_due(int64_t step) const { return step % every_ == 0; }

  // Hashes this rank's state after the update of `step`, in blocks of 256 KiB.
  void take(int64_t step, const std::vector<StateEntry>& state);
  // The same state before the next update, as often as the caller likes: throws ExitCode::kRanksDisagree naming rank,
  // machine, tensor and elements of the first block that has changed. Nothing where take() was not due.
  void compare(int rank, const std::vector<StateEntry>& state);
  bool has_taken() const { return step_ >= 0; }  // the same on every rank
  void end();                                    // the state may change from here on

  // The last step whose state was found as it had been, so that what was copied of it meanwhile is good; -1: none yet.
  int64_t last_good_step() const { return good_; }
  bool failed() const { return failed_; }

 private:
  const int64_t every_;
  int64_t step_ = -1, good_ = -1;
  bool failed_ = false;
  std::vector<Hash128> hashes_;
};

}  // namespace lockstep
