#include "launch/arguments/sweep_options.h"

#include <set>

#include "core/base/log.h"

namespace lockstep {
namespace {

std::string word_of(const Arguments& a, const std::string& name, const char* one, const char* other) {
  const std::string& text = a.text(name);
  require(text.empty() || text == one || text == other, ExitCode::kUsage, "--", name, " ", text, ": is ", one, " or ",
          other);
  return text;
}

std::optional<SweepDraws> draws_of(const Arguments& a) {
  const int64_t points = a.integer("random", 0, SweepGrid::kMaxPoints);
  const auto seed = static_cast<uint64_t>(a.integer("seed", 0));
  require(points > 0 || seed == 0, ExitCode::kUsage, "--seed has an effect only with --random");
  return points > 0 ? std::optional(SweepDraws{points, seed}) : std::nullopt;
}

// With these all points measure what --metric names, and choose their best checkpoint by it.
std::vector<std::string> overrides_of_metric(const Arguments& a) {
  const std::string &metric = a.text("metric"), mode = mode_of(a);
  if (metric.empty() || metric == "loss") return {};
  std::vector<std::string> out{"train.best.metric=" + metric};
  if (!mode.empty()) out.push_back("train.best.mode=" + mode);
  return out;
}

}  // namespace

std::vector<Option> search_options() {
  return {{"metric", "rank by this measure of the validation; empty: train.best.metric where it is given, else loss",
           "NAME", ""},
          {"mode", "whether the lowest or the highest comes first; empty: as the metric has it", "min|max", ""},
          {"by", "rank by the last or the best value of a run; empty: last", "best|last", ""},
          {"random", "draw N points instead of taking every combination; 0: take every combination", "N", "0"},
          {"seed", "of --random: the same seed draws the same points", "S", "0"}};
}

std::vector<std::string> search_words(const Arguments& a) {
  std::vector<std::string> out;
  for (const Option& o : search_options())
    if (a.text(o.name) != o.standard) out.insert(out.end(), {"--" + o.name, a.text(o.name)});
  return out;
}

SweepSpec sweep_of(const App& app, const Arguments& a, int ranks) {
  SweepSpec out;
  out.file = a.positional[0];
  out.ranks = ranks;
  out.draws = draws_of(a);
  out.grid = SweepGrid::parse(a.rest(), choices_of_keys(app), out.draws);
  out.for_ranking = overrides_of_metric(a);
  by_of(a);
  if (!out.draws) return out;
  std::set<std::string> different;
  for (int64_t p = 0; p < out.grid.points(); ++p) different.insert(out.grid.text(p));
  if (std::ssize(different) < out.grid.points())
    log_warning(str("--random ", out.grid.points(), ": only ", different.size(), " of the points differ, since the ",
                    "values make no more; the others repeat them"));
  return out;
}

std::string mode_of(const Arguments& a) { return word_of(a, "mode", "min", "max"); }
std::string by_of(const Arguments& a) { return word_of(a, "by", "best", "last"); }

SweepRanking ranking_of(const Arguments& a, const Settings& s, const SweepPoints& points) {
  using Mode = TrainOptions::Best::Mode;
  SweepRanking out;
  const TrainOptions::Best& best = s.train.best;
  if (!a.text("metric").empty()) out.metric = a.text("metric");
  else if (s.config.given("train.best.metric")) out.metric = best.metric;
  const std::string mode = mode_of(a);
  out.by_best = by_of(a) == "best";
  require(out.metric == "loss" || points.unvalidated.empty(), ExitCode::kConfig, "--metric ", out.metric,
          ": is measured on the validation part of the data, and ", points.unvalidated,
          " has none; set data.validation, or rank by --metric loss, which takes the training loss then");
  if (!mode.empty()) out.highest = mode == "max";
  else if (best.metric == out.metric && best.mode != Mode::kAuto) out.highest = best.mode == Mode::kMax;
  else if (const Metric* found = find_metric(points.metrics, out.metric)) out.highest = !found->lower_is_better;
  else
    require(out.metric == "loss", ExitCode::kConfig, "--metric ", out.metric,
            ": whether higher is better is known only with the data, which cannot be opened; give --mode min or max");
  return out;
}

}  // namespace lockstep
