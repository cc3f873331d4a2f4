#include "launch/training/saved_state.h"

#include "launch/artifacts/open_whole.h"
#include "launch/artifacts/run_dir.h"
#include "launch/artifacts/saver.h"
#include "launch/world/fail_together.h"

namespace lockstep {

CheckpointInfo SavedState::resume(const std::vector<StateEntry>& state) const {
  Communicator& comm = parallel_.mesh().data().comm();
  bool there = false;
  fail_together(comm, [&] { there = has_checkpoint(directory_); });
  // A directory that is not there yet is no error; ranks that see different ones are told apart by newest_whole.
  int any = 0;
  for (int64_t one : all_gather_values(comm, there, "resume")) any += one != 0;
  if (any == 0) return {};
  const auto newest = newest_whole(comm, directory_);
  if (!newest) return {};
  fail_together(comm, [&] { load_entries(*newest, state); });
  parallel_.state_was_loaded();
  return newest->info;
}

void SavedState::save(CheckpointInfo info, const std::vector<StateEntry>& state) const {
  const Mesh& mesh = parallel_.mesh();
  info.ranks = mesh.data().size;
  Saver saver(mesh.data().comm(), RunPaths{directory_}.checkpoints(), Retention{});
  saver.start(info, cut_for_rank(state, mesh.replica().index, mesh.replica().size));
  saver.finish();
}

}  // namespace lockstep
