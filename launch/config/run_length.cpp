#include "launch/config/run_length.h"

#include <algorithm>
#include <cmath>
#include <mutex>

#include "core/base/error.h"
#include "core/base/partition.h"

namespace lockstep {
namespace {

constexpr const char* kSteps = "train.steps";
constexpr const char* kEpochs = "train.epochs";
constexpr const char* kTokens = "train.tokens";
constexpr double kMostSteps = 1e12;  // as the range of train.steps

void end_schedule(Settings& s) {
  int64_t* end = s.schedule->end();
  if (!end || *end > 0 || s.train.steps == 0) return;
  *end = s.train.steps;
  s.config.resolve("schedule.steps", *end, kSteps);
}

// "3", "0.5": the value as the configuration gives it.
std::string epochs_text(double epochs) {
  std::string out = str(epochs);
  return out + (epochs == 1 ? " epoch" : " epochs");
}

int64_t steps_of_epochs(const Settings& s, int64_t epoch) {
  const double whole = std::floor(s.train.epochs);
  // What the rounding of a decimal fraction adds is no sample.
  const double samples = std::ceil((s.train.epochs - whole) * static_cast<double>(epoch) - 1e-6);
  const int64_t per_epoch = ceil_div(epoch, s.batch.global);
  require(whole * static_cast<double>(per_epoch) <= kMostSteps, ExitCode::kConfig, s.config.place(kEpochs), ": ",
          s.train.epochs, " epochs of ", per_epoch, " steps are more than ", kMostSteps, " steps");
  const int64_t rest = ceil_div(static_cast<int64_t>(std::max(0.0, samples)), s.batch.global);
  return std::max<int64_t>(1, static_cast<int64_t>(whole) * per_epoch + rest);
}

int64_t steps_of_tokens(const Settings& s, const Dataset& train) {
  const DataSpec& spec = train.spec();
  const std::string place = s.config.place(kTokens);
  require(spec.unit == "tokens", ExitCode::kConfig, place, ": the data has no tokens, it has ", spec.unit,
          "; give train.epochs or train.steps");
  require(spec.length_buckets == 1, ExitCode::kConfig, place,
          ": the samples have several lengths (data.buckets), so that steps differ in tokens; give train.epochs or "
          "train.steps");
  const int64_t steps = steps_of_samples(ceil_div(s.train.tokens, spec.units), train.size(), s.batch.global);
  require(static_cast<double>(steps) <= kMostSteps, ExitCode::kConfig, place, ": ", s.train.tokens,
          " tokens are more than ", kMostSteps, " steps");
  return steps;
}

}  // namespace

bool needs_data_for_steps(const Settings& s) { return s.train.epochs > 0 || s.train.tokens > 0; }

void begin_steps(Settings& s) {
  std::string given;
  int count = 0;
  for (const auto& [key, is_given] : {std::pair(kSteps, s.config.given(kSteps) && s.train.steps > 0),
                                      std::pair(kEpochs, s.train.epochs > 0), std::pair(kTokens, s.train.tokens > 0)}) {
    if (!is_given) continue;
    given += str(count++ ? ", " : "", s.config.place(key));
  }
  require(count < 2, ExitCode::kConfig, given,
          ": each of these says how long the run is; give one of them, and take back another one as ~train.steps does");
  for (const char* key : {kEpochs, kTokens})
    require(count > 0 || !s.config.given(key) || s.config.given(kSteps), ExitCode::kConfig, s.config.place(key),
            ": 0 says no length of the run; give train.steps, or take the key back as ~", key,
            " does, which trains the default of ", s.train.steps, " steps");
  if (!needs_data_for_steps(s)) return end_schedule(s);
  s.train.steps = 0;
  s.config.replace(kSteps, 0, str("by ", s.config.place(s.train.epochs > 0 ? kEpochs : kTokens), ", with the data"));
}

void resolve_steps(Settings& s, const Dataset& train) {
  static std::mutex mutex;
  std::lock_guard lock(mutex);
  if (!needs_data_for_steps(s)) return;
  const bool by_epochs = s.train.epochs > 0;
  const char* key = by_epochs ? kEpochs : kTokens;
  s.train.steps = by_epochs ? steps_of_epochs(s, train.size()) : steps_of_tokens(s, train);
  s.train.length = by_epochs ? str(epochs_text(s.train.epochs), " of ", train.size(), " samples")
                             : str(s.train.tokens, " tokens, ", train.spec().units, " a sample");
  s.config.replace(kSteps, s.train.steps,
                   str("by ", s.config.place(key), ": ", s.train.length, ", ", s.batch.global, " a step"));
  s.config.resolve(key, 0, kSteps);
  s.train.epochs = 0;
  s.train.tokens = 0;
  end_schedule(s);
}

int64_t steps_of_samples(int64_t samples, int64_t epoch, int64_t batch) {
  return samples / epoch * ceil_div(epoch, batch) + ceil_div(samples % epoch, batch);
}

std::string length_text(const Settings& s) {
  if (s.train.epochs > 0) return epochs_text(s.train.epochs);
  if (s.train.tokens > 0) return str(s.train.tokens, " tokens");
  return str(s.train.steps, s.train.steps == 1 ? " step" : " steps", s.train.length.empty() ? "" : " (", s.train.length,
             s.train.length.empty() ? "" : ")");
}

}  // namespace lockstep
