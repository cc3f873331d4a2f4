#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "comm/mpi/mpi_comm.h"
#include "core/base/partition.h"
#include "core/io/json.h"
#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/commands/job.h"
#include "launch/config/run_length.h"
#include "launch/proof/prover.h"
#include "launch/terminal/output.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

const std::vector<std::string> kLevels = [] {
  std::vector<std::string> words;
  for (ShardLevel level : kShardLevels) words.emplace_back(to_text(level));
  return words;
}();

// The numbers of ranks, ascending: those of --ranks, or 1, 2, 4 (under a launcher, up to the number it started), as far
// as a step has enough micro-batches.
std::vector<int> ranks_of(const Arguments& a, int64_t most) {
  const std::string& list = a.text("ranks");
  const int launched = mpi_launched() ? world_size(0) : 0;
  std::set<int> out;
  if (list.empty()) {
    for (int r = 1; r <= (launched ? launched : 4); r *= 2)
      if (r <= most) out.insert(r);
    if (launched && launched <= most) out.insert(launched);
    return {out.begin(), out.end()};
  }
  for (const std::string& word : a.list("ranks")) {
    int r = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), r);
    require(error == std::errc() && end == word.data() + word.size() && r >= 1 && r <= kMostRanks, ExitCode::kUsage,
            "--ranks ", list, ": '", word, "' is not a number from 1 to ", kMostRanks);
    require(!launched || r <= launched, ExitCode::kUsage, "--ranks ", list, ": the launcher started ", launched,
            " processes only; start it with -n ", r);
    out.insert(r);
  }
  return {out.begin(), out.end()};
}

std::vector<std::string> levels_of(const Arguments& a) {
  const std::string& list = a.text("levels");
  if (list == "all") return kLevels;
  const std::vector<std::string> words = a.list("levels");
  require(!words.empty(), ExitCode::kUsage, "--levels: the list is empty");
  for (const std::string& w : words)
    require(std::find(kLevels.begin(), kLevels.end(), w) != kLevels.end(), ExitCode::kUsage, "--levels ", list, ": '",
            w, "' is not one of none, optimizer, gradients, parameters");
  std::vector<std::string> out;  // in the order of `kLevels`, each once
  for (const std::string& l : kLevels)
    if (std::find(words.begin(), words.end(), l) != words.end()) out.push_back(l);
  return out;
}

// Makes the layouts of a plan from one configuration file.
class LayoutMaker {
 public:
  LayoutMaker(const App& app, std::string file, std::vector<std::string> overrides)
      : app_(app), file_(std::move(file)), overrides_(std::move(overrides)), given_(tree()) {
    given_.bind("batch", fields(batch_));
    given_.bind("", fields(parallel_));
    given_.bind("", {recompute_field(recompute_)});
    own_.push_back("verify.every=1");  // checks that all ranks of a run agree
  }

  bool fast() const { return parallel_.reduce == ReduceMode::kFast; }
  bool recomputes_attention() const { return recompute_ == Recompute::kAttention; }
  // The most ranks that have a micro-batch of each step.
  int64_t most_ranks() const { return batch_.micro > 0 ? ceil_div(batch_.global, batch_.micro) : batch_.global; }

  // The size of a micro-batch must not depend on the number of ranks, of which there are at most `ranks`. What it
  // decides goes into `notes`.
  void fix_micro_batch(int ranks, std::vector<std::string>& notes) {
    if (batch_.micro > 0) return;
    require(batch_.global % ranks == 0, ExitCode::kConfig, given_.place("batch.micro"),
            ": 0 makes micro-batches depend on the number of ranks, and batch.global: ", batch_.global,
            " does not divide by ", ranks, " ranks; set batch.micro, or other --ranks");
    const int64_t share = batch_.global / ranks;
    own_.push_back(str("batch.micro=", share));
    notes.push_back(str("batch.micro is 0, a share for each rank: set to ", share, " here, the share of ", ranks,
                        ranks == 1 ? " rank" : " ranks"));
  }

  std::unique_ptr<RankLayout> make(const std::string& mode, int ranks, const std::string& level, int group,
                                   const std::vector<std::string>& more = {}) const {
    auto l = std::make_unique<RankLayout>();
    l->ranks = ranks, l->group = group, l->level = level, l->recompute = mode;
    // The file's own sharding keys apply to its own level only.
    std::vector<std::string> all = own_;
    all.push_back(str("sharding.level=", level));
    all.push_back(str("sharding.group=", group));
    all.push_back(str("recompute=", mode));
    if (level != "parameters")
      all.insert(all.end(), {"sharding.reshard_after_forward=auto", "sharding.gathered_limit=0"});
    all.insert(all.end(), more.begin(), more.end());
    ConfigTree with = tree();
    for (const std::string& text : all) with.set(text, "prove");
    l->settings = load_settings(app_, std::move(with), ranks);
    return l;
  }

 private:
  ConfigTree tree() const { return ConfigTree::load(file_, overrides_); }

  const App& app_;
  std::string file_;
  std::vector<std::string> overrides_, own_;  // own_: settings of every run
  Config given_;
  BatchOptions batch_;
  DataParallelOptions parallel_;
  Recompute recompute_ = Recompute::kNone;
};

ProofPlan plan_of(const App& app, const Arguments& a) {
  ProofPlan plan;
  plan.steps = a.integer("steps", 1);
  plan.json = a.has("json");
  require(!a.has("resume") || plan.steps >= 2, ExitCode::kUsage,
          "--resume needs --steps 2 or more: half of them come before the save");
  LayoutMaker layouts(app, a.positional[0], a.rest());
  const std::vector<int> ranks = ranks_of(a, layouts.most_ranks());
  plan.world = mpi_launched() ? world_size(0) : ranks.back();
  layouts.fix_micro_batch(ranks.back(), plan.notes);
  plan.fast = layouts.fast();

  const auto add = [&](auto&&... what) {
    plan.layouts.push_back(layouts.make(what...));
    plan.rows.push_back({plan.layouts.back().get()});
  };
  if (plan.fast) add("none", 1, "none", 0, std::vector<std::string>{"reduce=exact"});
  const size_t before = plan.rows.size();
  const RankLayout *small = nullptr, *large = nullptr;  // among the layouts that every model supports
  std::vector<std::string> modes{"none", "block"};
  if (layouts.recomputes_attention()) modes.push_back("attention");
  for (const std::string& mode : modes) {
    for (const std::string& level : levels_of(a)) {
      for (int r : ranks) add(mode, r, level, 0);
      if (level == "gradients" || level == "parameters")  // hybrid: two shard groups
        for (int r : ranks)
          if (r > 2 && r % 2 == 0) add(mode, r, level, r / 2);
    }
    if (mode == "none") small = plan.rows[before].layout, large = plan.rows.back().layout;
  }
  if (a.has("resume")) {
    plan.half = plan.steps / 2;
    plan.rows.push_back({small, large});
    if (large != small) plan.rows.push_back({large, small});
  }
  const Settings& s = *small->settings;
  if (!needs_data_for_steps(s)) require_steps(s, plan.steps);
  return plan;
}

std::string with_digits(const char* pattern, double v) {
  char text[64];
  std::snprintf(text, sizeof text, pattern, v);
  return text;
}

std::string table(const ProofPlan& plan, const std::vector<ProofRow>& rows) {
  std::vector<std::vector<std::string>> lines{{"ranks", "backend", "level", "recompute", "micro",
                                               plan.fast ? "largest relative difference" : "digest", "loss", "seconds",
                                               ""}};
  for (const ProofRow& row : rows) {
    const RankLayout &l = *row.layout, &f = row.saved_by ? *row.saved_by : l;
    const bool first = &row == &rows[0];
    std::string result = to_hex(row.record.digest);
    if (plan.fast) result = first ? "0" : str(with_digits("%.2g", row.far.first), " in ", row.far.second);
    std::string verdict = first ? (plan.fast ? "exact" : "") : plan.fast ? "" : "equal";
    if (!row.difference.empty()) verdict = "DIFFERS";
    if (row.saved_by) verdict += str(verdict.empty() ? "" : ", ", "saved and resumed after step ", plan.half);
    lines.push_back({row.join(str(f.ranks), str(l.ranks)), row.record.backend, row.join(f.level_text(), l.level_text()),
                     l.recompute, str(l.settings->batch.micro), result, with_digits("%.6f", row.record.losses.back()),
                     with_digits("%.2f", row.record.seconds), verdict});
  }
  std::string out;
  for (const auto& line : lines) {
    std::string text;
    for (size_t c = 0; c < line.size(); ++c) {
      size_t width = 0;
      for (const auto& other : lines) width = std::max(width, other[c].size());
      text += line[c] + std::string(width - line[c].size() + 2, ' ');
    }
    text.erase(text.find_last_not_of(' ') + 1);
    out += text + "\n";
  }
  return out;
}

std::string json(const ProofPlan& plan, const std::vector<ProofRow>& rows, const std::string& verdict, int64_t differ) {
  std::string out;
  for (const ProofRow& row : rows) {
    const RankLayout& l = *row.layout;
    JsonObject line{{"ranks", static_cast<int64_t>(l.ranks)},
                    {"backend", row.record.backend},
                    {"level", l.level},
                    {"group", static_cast<int64_t>(l.group)},
                    {"recompute", l.recompute},
                    {"batch_micro", l.settings->batch.micro},
                    {"digest", to_hex(row.record.digest)},
                    {"loss", row.record.losses.back()},
                    {"seconds", row.record.seconds}};
    if (row.saved_by) line.emplace_back("saved_by", row.saved_by->name());
    if (plan.fast) {
      line.emplace_back("relative_difference", row.far.first);
      line.emplace_back("in", row.far.second);
    } else {
      line.emplace_back("equal", row.difference.empty());
      if (!row.difference.empty()) line.emplace_back("difference", row.difference);
    }
    out += json_line(line) + "\n";
  }
  return out +
         json_line({{"verdict", verdict},
                    {"steps", plan.steps},
                    {"runs", static_cast<int64_t>(rows.size())},
                    {"differ", differ},
                    {"skipped_steps", rows[0].record.skipped}}) +
         "\n";
}

// Prints the result; returns the problem in one line, or an empty text.
std::string conclude(const ProofPlan& plan, const std::vector<ProofRow>& rows, int64_t differ) {
  const auto runs = static_cast<int64_t>(rows.size());
  std::string verdict = differ ? str(differ, " of ", runs, " runs differ from the first") : "one digest";
  if (plan.fast && !differ) verdict = "reduce: fast does not promise equal bits; the differences are those above";
  if (plan.fast && differ) verdict = str(differ, " of ", runs, " runs hold values that are not finite");
  if (plan.json) {
    print_out(json(plan, rows, verdict, differ));
  } else {
    const Settings& s = *rows[0].layout->settings;
    std::string text = str("\n", s.model_name, ", ", plan.steps, plan.steps == 1 ? " step" : " steps",
                           ", batch.global ", s.batch.global, ", ", ceil_div(s.batch.global, s.batch.micro),
                           " micro-batches of ", s.batch.micro, " samples per step\n");
    for (const std::string& note : plan.notes) text += note + "\n";
    text += "\n" + table(plan, rows) + "\n";
    for (const ProofRow& row : rows)
      if (!row.difference.empty()) text += str(row.name(), ": ", row.difference, "\n");
    const int64_t skipped = rows[0].record.skipped;
    if (skipped > 0)
      text += str(skipped, " of ", plan.steps,
                  " steps had no finite gradient and changed nothing, so this result proves little\n");
    print_out(str(text, verdict, plan.fast || differ ? "" : str(": ", runs, " runs"), "\n"));
  }
  return differ ? str("prove: ", verdict) : "";
}

}  // namespace

std::vector<Command> prove_forms() {
  return {
      {"prove",
       "prove FILE.yaml [key.path=value ...] [--ranks 1,2,4] [--steps N] [--levels all] [--resume] [--json]",
       "Trains the model of FILE.yaml for a few steps at each number of ranks and each shard level, and compares the\n"
       "bits of the runs: one digest of parameters, moments and data position, and the loss of every step. If two\n"
       "runs differ, it names the first step, tensor and element. Nothing is written to run.dir. With reduce: fast\n"
       "it measures how far the runs are from one rank in exact mode. Under mpirun -n N ranks are processes, at most\n"
       "N; otherwise threads.\n"
       "Exit code 70 if runs differ.",
       {{"ranks", "numbers of ranks; default: 1,2,4 as far as a step has enough micro-batches", "LIST", ""},
        {"steps", "steps of each run", "N", "5"},
        {"levels", "levels of sharding: none, optimizer, gradients, parameters", "LIST", "all"},
        {"resume", "also save after half the steps, and resume with other ranks"},
        {"json", "print one JSON object per run, and one for the verdict"}},
       1}};
}

int prove_command(const App& app, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(prove_forms(), given);
  if (a.help) return 0;
  ProofPlan plan = plan_of(app, a);
  Settings& settings = *plan.layouts[0]->settings;
  Job job(settings, mpi_launched() ? 0 : plan.world);
  // comm.deadline is meant for the user's number of ranks; a single rank takes that many times longer for a step.
  job.world().deadline_s = settings.deadline * plan.world;
  std::vector<std::unique_ptr<Communicator>> groups(static_cast<size_t>(plan.world));
  std::string problem;  // set on rank 0
  const int failed = job.run("prove", [&](Communicator& comm, const Datasets& data) {
    Prover prover(plan, comm, data, groups[static_cast<size_t>(comm.rank())]);
    const int64_t differ = prover.go();
    if (comm.rank() == 0) problem = conclude(plan, prover.rows(), differ);
  });
  require(failed != 0 || problem.empty(), ExitCode::kNumeric, problem);
  return failed;
}

}  // namespace lockstep
