// StateMirror: copies of ranks' shares of the state on other machines, for where a machine takes the only one with it
// (recovery.mirror_every). A thread of its own sends this rank's share to the rank that keeps its copy, and receives
// those that this rank keeps, beside training. Owned by MemoryRecovery; borrows this rank's share.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "comm/communicator.h"
#include "launch/recovery/state_memory.h"

namespace lockstep {

class StateMirror {
 public:
  struct Guest {
    int rank = 0;  // whose share it is
    StateMemory memory;
  };
  // `keeper_of`: by rank, the one that keeps a copy of its share, -1: none; the same on all ranks. `guests`: those that
  // this rank keeps. Collective.
  StateMirror(Communicator& comm, std::vector<int> keeper_of, StateMemory& own, std::vector<Guest> guests);
  StateMirror(const StateMirror&) = delete;
  ~StateMirror();

  // The share's state after `step` is copied from now on; it and the last one that was copied stay where they are until
  // all ranks have. Waits for the copy before. Throws what that threw.
  void start(int64_t step);
  void finish();  // waits for the copy that is under way

  // The rank that keeps each rank's copy: of the next machine, at the same place among its ranks. `machine_of`: by
  // rank.
  static std::vector<int> keepers(const std::vector<int>& machine_of);

 private:
  void work();
  void copy(int64_t step);

  std::unique_ptr<Communicator> comm_;
  const std::vector<int> keeper_of_;
  StateMemory& own_;
  std::vector<Guest> guests_;
  std::shared_ptr<const void> copied_;  // keeps the last state whose copies all ranks have
  std::mutex mutex_;
  std::shared_ptr<const void> kept_;  // and this one the one that is being copied
  std::condition_variable changed_;
  int64_t asked_ = -1;
  bool ending_ = false;
  std::exception_ptr failure_;
  std::thread thread_;
};

}  // namespace lockstep
