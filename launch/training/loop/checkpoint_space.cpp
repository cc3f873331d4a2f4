#include "launch/training/loop/checkpoint_space.h"

#include <limits>
#include <numeric>

#include "launch/checkpoints/planned_saves.h"
#include "launch/records/run_dir.h"
#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

void require_space_in(const std::string& dir, int64_t every, std::string_view key, const Settings& settings,
                      int64_t done, int64_t bytes) {
  const RunPaths paths{dir};
  const CheckpointOptions& o = settings.checkpoint;
  std::vector<int64_t> there;
  for (const std::string& path : list_checkpoints(paths.dir)) there.push_back(step_of_checkpoint(path));
  const int64_t best_every = o.keep_best > 0 ? settings.train.eval_every : 0;
  const int64_t added = most_added_checkpoints({done, settings.train.steps, every, o.every_minutes > 0, best_every},
                                               std::move(there), {o.keep_last, o.keep_every, o.keep_best});
  int64_t all = 0;
  if (__builtin_mul_overflow(added, bytes, &all)) all = std::numeric_limits<int64_t>::max();
  require_free_space(nearest_folder(paths.checkpoints()), all,
                     str("but ", added, added == 1 ? " more checkpoint of " : " more checkpoints of ",
                         bytes_text(bytes), " each (", key, ", checkpoint.keep_last) need"));
}

}  // namespace

void require_checkpoint_space(const Settings& settings, int64_t done, int64_t bytes) {
  const CheckpointOptions& o = settings.checkpoint;
  require_space_in(settings.run.dir, o.every, "checkpoint.every", settings, done, bytes);
  if (o.mirror.empty()) return;
  const bool both = o.every > 0 && o.mirror_every > 0;
  require_space_in(o.mirror, both ? std::lcm(o.every, o.mirror_every) : o.every, "checkpoint.mirror_every", settings,
                   done, bytes);
}

}  // namespace lockstep
