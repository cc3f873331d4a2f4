#include <algorithm>
#include <set>

#include "comm/mpi/mpi_comm.h"
#include "core/base/log.h"
#include "core/base/text_table.h"
#include "data/streams/data_identity.h"
#include "launch/arguments/command_line.h"
#include "launch/arguments/sweep_options.h"
#include "launch/commands/commands.h"
#include "launch/config/settings.h"
#include "launch/process/child_process.h"
#include "launch/sweep/points.h"
#include "launch/sweep/run.h"
#include "launch/terminal/output.h"

namespace lockstep {
namespace {

void print_results(const SweepRecord& record, bool as_json) {
  const std::vector<PointResult> results = record.results();
  record.write(results);
  if (!as_json) return print_out(record.table(results));
  for (const PointResult& r : results) print_out(json_line(record.json(r)) + "\n");
}

// Those of the first rung, with halving.
void print_plan(const SweepSpec& spec, const std::string& dir, bool as_json, int64_t threads, int64_t until) {
  for (int64_t p = 0; p < spec.grid.points(); ++p) {
    const std::string place = str(dir, "/", SweepRecord::name(p));
    const std::string line = shell_line(command_of(spec, place, p, threads, until));
    if (!as_json) print_out(str(SweepRecord::name(p), "  ", spec.grid.text(p), "\n    ", line, "\n"));
    else
      print_out(json_line({{"point", p}, {"dir", place}, {"values", values_json(spec.grid, p)}, {"command", line}}) +
                "\n");
  }
}

std::optional<Halving> halving_of(const Arguments& a, const SweepPoints& points, const SweepRanking& by) {
  const int64_t eta = a.integer("eta", 2, 1000), first = a.integer("min-steps", 0);
  if (!a.has("halving")) {
    require(a.text("eta") == "3" && first == 0, ExitCode::kUsage, "--eta and --min-steps have an effect only with ",
            "--halving");
    return std::nullopt;
  }
  require(a.text("array").empty(), ExitCode::kUsage, "--halving: needs all points, and --array runs one alone");
  const int64_t steps = points.steps[0];
  require(std::all_of(points.steps.begin(), points.steps.end(), [&](int64_t n) { return n == steps; }),
          ExitCode::kConfig, "--halving: the points must have the same number of steps (train.steps)");
  require(steps > 0, ExitCode::kConfig, "--halving: the number of steps is not known, as the data of train.epochs or ",
          "train.tokens is not there; import it first, or set train.steps");
  require(steps > 1, ExitCode::kConfig, "--halving: a point has 1 step, and needs at least 2");
  require(first < steps, ExitCode::kUsage, "--min-steps ", first, ": must be below the ", steps, " steps of a point");
  return Halving{
      eta, first > 0 ? first : std::max<int64_t>(1, steps / (eta * eta)), steps,
      str(by.by_best ? "the best " : "the last ", by.metric, by.highest ? ", highest" : ", lowest", " first")};
}

std::string rungs_text(const std::vector<Rung>& rungs, int64_t points) {
  std::string out = "halving:";
  for (const Rung& r : rungs)
    out += str(&r == rungs.data() ? " " : ", ", r.points, &r == rungs.data() ? " points to step " : " to ", r.steps);
  const int64_t all = points * rungs.back().steps, trained = steps_of_rungs(rungs);
  return str(out, "; ", trained, " of the ", all, " steps of the whole grid, ",
             fixed(100.0 * static_cast<double>(trained) / static_cast<double>(all), 0), "%");
}

// Ranked as the sweep was, or as the options say.
int collect(const Arguments& a) {
  require(a.positional.empty(), ExitCode::kUsage, "sweep: --collect takes no other argument than the directory");
  SweepRecord record(a.text("collect"));
  SweepRanking by = record.spec().ranking;
  const std::string mode = mode_of(a), of = by_of(a);
  const std::string& metric = a.text("metric");
  if (!metric.empty() && metric != by.metric) {
    require(!mode.empty() || metric == "loss", ExitCode::kUsage, "--collect with another --metric than the sweep's, ",
            by.metric, ", needs --mode min or max");
    const std::vector<std::string> there = record.metrics();
    std::string listed;
    for (const std::string& one : there) listed += str(listed.empty() ? "" : ", ", one);
    require(std::find(there.begin(), there.end(), metric) != there.end(), ExitCode::kConfig, "--metric ", metric,
            ": no point has measured it; there are ", listed.empty() ? "none" : listed);
    by.metric = metric;
    by.highest = false;
  }
  if (!mode.empty()) by.highest = mode == "max";
  if (!of.empty()) by.by_best = of == "best";
  record.set_ranking(by);
  print_results(record, a.has("json"));
  return 0;
}

}  // namespace

std::vector<Command> sweep_forms() {
  Command sweep{
      "sweep",
      "sweep FILE.yaml key=a,b key2='range(1,4)' ... [--random N] [--halving] [--jobs J] [--dir DIR] [--dry-run] | "
      "sweep --collect DIR",
      "Trains FILE.yaml with every combination of the values that are given, each as a run of its own in DIR/000,\n"
      "DIR/001, ... (the first key changes slowest), and prints their losses, lowest first, also to DIR/sweep.csv and\n"
      "DIR/sweep.json. Values of a key: a,b  choice(a,b)  range(start,stop,step), without the stop  glob(adam*), over\n"
      "the choices of a key such as optim.name; with --random also  interval(a,b)  tag(log, interval(a,b)).\n"
      "A value with commas stands in brackets or quotes. A run that fails does not end the others; the exit code is\n"
      "that of the first one that failed. SIGTERM, SIGINT, SIGHUP, SIGUSR1 or SIGUSR2: all runs save and end, exit\n"
      "code 75. The same command again goes on: what has finished is not repeated.",
      {{"jobs", "runs at a time; 0: as many as the cores, or the GPUs, are enough for", "J", "0"},
       {"ranks", "ranks of each run, as processes of `lockstep launch`", "N", "1"},
       {"dir", "directory of the sweep; empty: run.dir of the configuration and -sweep", "DIR", ""},
       {"dry-run", "only check all configurations and print the commands"},
       {"time", "seconds after which all runs save and end with 75; 0: no limit", "S", "0"},
       {"array", "run only this point, for a job array of a scheduler", "I", ""},
       {"collect", "only print and write the results of the sweep in this directory", "DIR", ""},
       {"halving", "successive halving: all points train a few steps, and the best go on"},
       {"eta", "with --halving: one of so many points goes on, to so many times the steps", "E", "3"},
       {"min-steps", "with --halving: steps of all points; 0: the steps of a whole run divided by E twice", "N", "0"},
       {"json", "print one JSON object per point"}}};
  const std::vector<Option> search = search_options();
  sweep.options.insert(sweep.options.end() - 4, search.begin(), search.end());
  return {sweep};
}

int sweep_command(const App& app, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(sweep_forms(), given);
  if (a.help) return 0;
  require(!mpi_launched(), ExitCode::kUsage, "sweep: this process was itself started by an MPI launcher; ",
          "start `lockstep sweep` once, without mpirun or srun");
  if (!a.text("collect").empty()) return collect(a);
  require(!a.positional.empty(), ExitCode::kUsage, "sweep: missing argument; `lockstep sweep --help` says more");
  const bool one = !a.text("array").empty();
  SweepSpec spec = sweep_of(app, a, a.ranks(1));
  const int64_t point = one ? a.integer("array", 0, spec.grid.points() - 1) : 0;
  const int64_t jobs = a.integer("jobs", 0, 4096);

  const SweepPoints checked = check_points(app, spec);
  const std::vector<DataOptions>& data = checked.data;
  spec.configuration = checked.configuration;
  const auto settings = load_settings(app, ConfigTree::load(spec.file, spec.overrides(0)), spec.ranks);
  spec.ranking = ranking_of(a, *settings, checked);
  spec.halving = halving_of(a, checked, spec.ranking);
  const auto rungs = spec.halving ? rungs_of(*spec.halving, spec.grid.points()) : std::vector<Rung>();
  const std::string rungs_said = rungs.empty() ? "" : rungs_text(rungs, spec.grid.points());
  const std::string dir = a.text("dir").empty() ? settings->run.dir + "-sweep" : a.text("dir");
  const SweepShare share = share_of(*settings, one ? 1 : jobs, spec.ranks);
  if (a.has("dry-run")) {
    if (!rungs.empty()) log_info(rungs_said);
    print_plan(spec, dir, a.has("json"), share.threads, rungs.size() > 1 ? rungs[0].steps : 0);
    return 0;
  }
  std::set<std::vector<std::string>> seen;  // most points have the same files
  for (const DataOptions& o : data)
    if (seen.insert(named_files(o)).second) spec.data.merge(file_identities(o));
  SweepRecord record(dir, spec, one);
  std::vector<int64_t> points;
  for (int64_t p = 0; p < spec.grid.points(); ++p)
    if (!one || p == point) points.push_back(p);
  if (!one)
    log_info(str(points.size(), points.size() == 1 ? " point, " : " points, ", share.jobs, " at a time, into ", dir));
  if (!rungs.empty()) log_info(rungs_said);
  SweepRun run(record, share, data, a.integer("time", 0));
  const int code = rungs.empty() ? run.run(points) : run.halve(rungs);
  if (!one && code != static_cast<int>(ExitCode::kSaved)) print_results(record, a.has("json"));
  return code;
}

}  // namespace lockstep
