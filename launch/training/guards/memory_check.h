// MemoryCheck: finds state that changes where nothing wrote it, between the update of a step and the next one: a fault
// of the memory, of a device's or the host's, or a stray write (verify.memory). Each block of 65,536 elements is hashed
// immediately after an update wrote it and compared immediately before the next update reads it, and all blocks are
// compared before any rank begins that update. Owned by the trainer; the optimizers are observed through it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/state/state.h"
#include "optim/optimizer.h"

namespace lockstep {

class MemoryCheck final : public UpdateObserver {
 public:
  MemoryCheck(int rank, int64_t every) : rank_(rank), every_(every) {}
  bool is_due(int64_t step) const { return step % every_ == 0; }
  bool has_taken() const { return step_ >= 0; }  // the same on every rank

  // This rank's state before the next update, as often as the caller likes: throws ExitCode::kRanksDisagree naming
  // rank, machine, tensor and elements of the first block that has changed. Nothing where take() was not due.
  void compare(const std::vector<StateEntry>& state);
  // The updates of `step` follow, and then end_update(). Between them before_update() throws as compare() does.
  void begin_update(int64_t step, const std::vector<StateEntry>& state);
  void before_update(const std::vector<Part>& parts) override;
  void after_update(const std::vector<Part>& parts) override;
  void end_update();
  // Hashes what of this rank's state after `step` no update has written: frozen parameters, statistics. For is_due().
  void take(int64_t step, const std::vector<StateEntry>& state);

  // The last step whose state was found as it had been, so that what was copied of it meanwhile is good; -1: none yet.
  int64_t last_good_step() const { return good_; }
  bool failed() const { return failed_; }

 private:
  struct Block {
    StateEntry values;
    Hash128 hash;
    bool known = false;    // `hash` is that of the values as they should be
    bool written = false;  // by an update since the last take(), which hashed it
  };
  using Values = std::vector<std::pair<Block*, StateEntry>>;  // blocks, and what their elements are now
  void lay_out(const std::vector<StateEntry>& state);
  Values blocks_of(const std::vector<Part>& parts);
  static std::vector<Hash128> hashes_of(const Values& blocks);
  void compare(Values blocks, const std::string& since);

  const int rank_;
  const int64_t every_;
  std::vector<Block> blocks_;
  std::unordered_map<const void*, size_t> first_;  // of the slice whose values begin there
  int64_t step_ = -1, updating_ = -1, good_ = -1;  // step_: of take(), until the next update
  bool failed_ = false;
};

}  // namespace lockstep
