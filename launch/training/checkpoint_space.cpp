#include "launch/training/checkpoint_space.h"

#include <limits>

#include "launch/artifacts/planned_saves.h"
#include "launch/artifacts/run_dir.h"
#include "launch/world/memory_report.h"

namespace lockstep {

void require_checkpoint_space(const Settings& settings, int64_t done, int64_t bytes) {
  const RunPaths paths{settings.run.dir};
  std::vector<int64_t> there;
  for (const std::string& path : list_checkpoints(paths.dir)) there.push_back(step_of_checkpoint(path));
  const CheckpointOptions& o = settings.checkpoint;
  const int64_t best_every = o.keep_best > 0 ? settings.train.eval_every : 0;
  const int64_t added = most_added_checkpoints({done, settings.train.steps, o.every, o.every_minutes > 0, best_every},
                                               std::move(there), {o.keep_last, o.keep_every, o.keep_best});
  int64_t all = 0;
  if (__builtin_mul_overflow(added, bytes, &all)) all = std::numeric_limits<int64_t>::max();
  require_free_space(nearest_folder(paths.checkpoints()), all,
                     str("but ", added, added == 1 ? " more checkpoint of " : " more checkpoints of ",
                         bytes_text(bytes), " each (checkpoint.every, checkpoint.keep_last) need"));
}

}  // namespace lockstep
