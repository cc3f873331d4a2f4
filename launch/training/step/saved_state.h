// SavedState: the checkpoints of a training loop of one's own, in a run directory that every rank sees. Owned by the
// loop; borrows DataParallel.
#pragma once

#include <string>
#include <vector>

#include "core/state/checkpoint.h"
#include "sharding/data_parallel.h"

namespace lockstep {

class SavedState {
 public:
  SavedState(DataParallel& parallel, std::string directory) : parallel_(parallel), directory_(std::move(directory)) {}

  // Reads the newest valid checkpoint into `state`, this rank's entries, among them those of parallel.state(), and
  // returns what it knows beside them; of a directory without a checkpoint, changes nothing and returns the state
  // before the first step. Collective. Throws what newest_whole (launch/checkpoints/open_whole.h) and load_entries
  // throw.
  CheckpointInfo resume(const std::vector<StateEntry>& state) const;
  // Saves `state`, in which replicas hold the same entries, and waits until it is complete on disk; each file is that
  // of one machine. Collective. Throws, on all ranks: ExitCode::kStorage, kNumeric, kRankLost
  // (launch/checkpoints/saver.h).
  void save(const CheckpointInfo& info, const std::vector<StateEntry>& state) const;

 private:
  DataParallel& parallel_;
  const std::string directory_;
};

}  // namespace lockstep
