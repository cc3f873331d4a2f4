#include "launch/arguments/chosen_checkpoint.h"

#include <algorithm>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/state/checkpoint.h"

namespace lockstep {
namespace {

std::string at_step(const std::string& run, const std::vector<std::string>& all, int64_t step) {
  std::string there;
  for (auto path = all.rbegin(); path != all.rend(); ++path) {
    if (step_of_checkpoint(*path) == step) return *path;
    there += str(there.empty() ? "" : ", ", step_of_checkpoint(*path));
  }
  throw Error(ExitCode::kMissingInput,
              str("--at ", step, ": ", run, " holds no checkpoint of that step; it holds those of ", there,
                  "; checkpoint.every makes more, checkpoint.keep_last and keep_every keep them"));
}

std::string best_of(const std::string& run, const std::vector<std::string>& all) {
  const std::vector<std::string> best = best_checkpoints(all, 1, true);
  require(
      !best.empty(), ExitCode::kMissingInput, "--best: none of the checkpoints in ", run,
      " was evaluated as it was saved; train.eval_every evaluates, and checkpoint.keep_best saves and keeps the best");
  const ValidationRecord known = open_checkpoint(all.front()).info.validation;
  if (known.best && known.best_step != step_of_checkpoint(best[0]))
    log_warning(str("--best: the best ", known.metric.empty() ? "loss" : known.metric, ", ", *known.best,
                    ", was measured after step ", known.best_step, ", of which ", run,
                    " keeps no checkpoint (checkpoint.keep_best saves and keeps the best); the best of those that are "
                    "there is that of step ",
                    step_of_checkpoint(best[0])));
  return best[0];
}

}  // namespace

std::vector<Option> with_choice_of_checkpoint(std::vector<Option> options) {
  options.push_back({"best",
                     "the run's best checkpoint by its validation (train.best), of those that are kept "
                     "(checkpoint.keep_best)"});
  options.push_back({"at", "the run's checkpoint after this step", "STEP", ""});
  return options;
}

std::string chosen_checkpoint(const Arguments& a) {
  const std::string& run = a.positional[0];
  const bool best = a.has("best"), at = !a.text("at").empty();
  if (!best && !at) return run;
  require(!best || !at, ExitCode::kUsage, "--best and --at: only one of them names a checkpoint");
  const char* option = best ? "--best" : "--at";
  std::error_code ignored;
  require(std::filesystem::is_directory(run, ignored), ExitCode::kMissingInput, run, ": there is no such directory");
  const std::vector<std::string> all = list_checkpoints(run);
  require(!all.empty(), ExitCode::kUsage, option, ": ", run, " is no run directory with checkpoints");
  return best ? best_of(run, all) : at_step(run, all, a.integer("at", 0));
}

std::vector<std::string> take_init_from(Arguments& a) {
  const auto first = std::stable_partition(a.positional.begin() + 1, a.positional.end(),
                                           [](const std::string& text) { return !text.starts_with("init.from="); });
  std::vector<std::string> out(first, a.positional.end());
  a.positional.erase(first, a.positional.end());
  return out;
}

}  // namespace lockstep
