#include "launch/training/step/saved_state.h"

#include <algorithm>

#include "launch/checkpoints/open_whole.h"
#include "launch/checkpoints/saver.h"
#include "launch/records/run_dir.h"
#include "launch/world/fail_together.h"
#include "sharding/mesh.h"

namespace lockstep {

CheckpointInfo SavedState::resume(const std::vector<StateEntry>& state) const {
  Communicator& comm = parallel_.mesh().data().comm();
  // A directory that is not there yet is no error; where only some ranks see a checkpoint, newest_whole says so.
  bool here = false;
  fail_together(comm, [&] { here = has_checkpoint(directory_); });
  const auto there = all_gather_values(comm, here, "resume");
  if (std::all_of(there.begin(), there.end(), [](int64_t one) { return one == 0; })) return {};
  const auto newest = newest_whole(comm, directory_);
  if (!newest) return {};
  fail_together(comm, [&] { load_entries(*newest, state); });
  parallel_.state_was_loaded();
  return newest->info;
}

void SavedState::save(const CheckpointInfo& info, const std::vector<StateEntry>& state) const {
  const Mesh& mesh = parallel_.mesh();
  Saver saver(mesh.data().comm(), RunPaths{directory_}.checkpoints());
  saver.start(info, cut_for_rank(state, mesh.replica().index, mesh.replica().size));
  saver.finish();
}

}  // namespace lockstep
