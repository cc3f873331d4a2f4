#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/io/files.h"
#include "launch/arguments/command_line.h"
#include "launch/arguments/sweep_options.h"
#include "launch/cluster/submitted.h"
#include "launch/commands/commands.h"
#include "launch/config/settings.h"
#include "launch/config/sweep_grammar.h"
#include "launch/records/run_dir.h"
#include "launch/sweep/points.h"
#include "launch/terminal/output.h"

namespace lockstep {
namespace {

std::vector<std::string> lines_of(const std::string& text, char end) {
  std::vector<std::string> out;
  std::istringstream parts(text);
  for (std::string p; std::getline(parts, p, end);)
    if (!p.empty()) out.push_back(p);
  return out;
}

std::string job_name(const std::string& run_dir) {
  std::string name = std::filesystem::path(run_dir).filename().string();
  std::replace_if(
      name.begin(), name.end(), [](unsigned char c) { return !std::isalnum(c) && c != '-' && c != '_'; }, '_');
  return name.empty() ? "lockstep" : name.substr(0, 60);
}

// What the arguments say of the job, without what it runs.
BatchJob job_of(const Arguments& a) {
  BatchJob job;
  job.scheduler = a.text("scheduler").empty() ? installed_scheduler() : a.text("scheduler");
  require(!job.scheduler.empty(), ExitCode::kMissingInput,
          "submit: neither sbatch nor qsub is installed here; --scheduler with --dry-run prints a script");
  require(job.scheduler == "slurm" || job.scheduler == "pbs", ExitCode::kUsage, "--scheduler ", job.scheduler,
          ": is slurm or pbs");
  job.nodes = static_cast<int>(a.integer("nodes", 1, 100'000));
  job.ranks_per_node = static_cast<int>(a.integer("ranks-per-node", 1, 4096));
  job.cpus_per_rank = static_cast<int>(a.integer("cpus-per-rank", 1, 4096));
  job.gpus_per_node = static_cast<int>(a.integer("gpus-per-node", 0, 4096));
  job.seconds = parse_time(a.text("time"));
  job.warning = a.integer("warning", 1, job.seconds);
  job.options = lines_of(a.text("option"), ';');
  job.setup = a.text("setup");
  return job;
}

// Checks the run, or the points of the sweep, that the job is for; returns where its results are.
std::string check_runs(const App& app, const Arguments& a, int ranks, BatchJob& job) {
  if (a.text("sweep").empty()) {
    const std::vector<std::string> search = search_words(a);
    require(search.empty(), ExitCode::kUsage, "submit: ", search.empty() ? "" : search[0],
            " has an effect only with --sweep");
    std::shared_ptr<Settings> s = load_settings(app, ConfigTree::load(a.positional[0], a.rest()), ranks);
    const std::string dir = s->run.dir;
    ModelTrials().add(std::move(s), ranks, a.positional[0]);
    return dir;
  }
  SweepSpec spec = sweep_of(app, a, ranks);
  const SweepPoints checked = check_points(app, spec);  // before ranking_of, since it notes what points leave out
  ranking_of(a, *load_settings(app, ConfigTree::load(spec.file, spec.overrides(0)), ranks), checked);
  job.points = spec.grid.points();
  job.at_once = a.integer("at-once", 0);
  return a.text("sweep");
}

// The command of this program that the job runs.
std::vector<std::string> job_command(const Arguments& a, const BatchJob& job, int ranks, int64_t restarts) {
  const std::string program = program_path(), &sweep = a.text("sweep");
  std::vector<std::string> out{program};
  const auto add = [&](const std::vector<std::string>& words) { out.insert(out.end(), words.begin(), words.end()); };
  const auto add_time = [&] {  // PBS sends no signal before the limit
    if (job.scheduler == "pbs") add({"--time", str(std::max<int64_t>(1, job.seconds - job.warning))});
  };
  if (sweep.empty()) {
    add({"launch", "-n", str(ranks), "--restarts", str(restarts)});
    for (const char* option : {"remote-shell", "interface"})
      if (!a.text(option).empty()) add({str("--", option), a.text(option)});
    add_time();
    add({"--", "train", a.positional[0]});
    add(a.rest());
    add({"run.resume=auto"});
  } else {
    add({"sweep", a.positional[0]});
    add(a.rest());
    add(search_words(a));
    add({"--dir", sweep, "--ranks", str(ranks)});
    add_time();
    add({"--array"});
  }
  return out;
}

std::string template_of(const Arguments& a) {
  std::string own;
  if (a.text("template").empty()) return own;
  std::ifstream file(a.text("template"));
  require(file.good(), ExitCode::kMissingInput, "the template ", a.text("template"), " cannot be read");
  own.assign(std::istreambuf_iterator<char>(file), {});
  return own;
}

// Submits the script, and keeps it and the job's id.
void submit(const BatchJob& job, const std::string& dir, const std::string& script) {
  if (const auto before = submitted_job(dir))
    if (const JobState s = job_state(before->scheduler, before->id); !s.state.empty())
      throw Error(ExitCode::kOutputLocked, str("run.dir ", dir, " belongs to job ", before->id, ", which is ", s.state,
                                               ": cancel it, or choose another run.dir"));
  std::error_code error;
  std::filesystem::create_directories(job.folder, error);
  if (error) fail_write(job.folder, error.value());
  for (const char* old : {"/cancelled", "/more_jobs"}) std::filesystem::remove(job.folder + old, error);
  const std::string path = job.folder + "/submit.sh";
  replace_file(path, script);
  const std::string id = submit_script(job, path);
  keep_submitted_job(dir, {job.scheduler, id});
  print_out(str("job ", id, "\n"));
  log_info(str("submitted ", path, " as job ", id, "; see it by `lockstep status ", dir, "`"));
}

}  // namespace

std::vector<Command> submit_forms() {
  Command submit{
      "submit",
      "submit FILE.yaml [key.path=value ...] --nodes N --ranks-per-node R --time 2:00:00 [options]",
      "Writes a batch script that trains FILE.yaml, and submits it to Slurm or PBS. The script, the job's id and its\n"
      "output are kept in RUN/job, where RUN is run.dir. Some time before the limit the run saves, and the job goes "
      "back\n"
      "into the queue and resumes, until all steps are done. `lockstep status`, `logs`, `cancel` and `top` take RUN.\n"
      "The templates of the scripts are configs/cluster/slurm.sh and pbs.sh. PBS was only tried against a stand-in.",
      {{"nodes", "machines", "N", "1"},
       {"ranks-per-node", "ranks on each machine", "R", "1"},
       {"cpus-per-rank", "cores of each rank", "C", "1"},
       {"gpus-per-node", "GPUs of each machine", "G", "0"},
       {"time", "limit: 2:00:00, 1-12:00:00, or minutes", "T", "1:00:00"},
       {"warning", "seconds before the limit at which the run saves", "S", "120"},
       {"restarts", "how often to come back within the job", "K", "3"},
       {"option", "lines for the scheduler, separated by semicolons: --partition=long;--account=me", "LINES", ""},
       {"setup", "shell commands before the run, such as: module load lockstep", "LINE", ""},
       {"template", "another template", "FILE", ""},
       {"sweep", "submit `lockstep sweep` with its results in this directory, as an array of jobs", "DIR", ""},
       {"at-once", "with --sweep: jobs of the array at a time; 0: all", "N", "0"},
       {"scheduler", "slurm or pbs; without it the one that is installed", "NAME", ""},
       {"remote-shell", "see `lockstep launch`", "PROGRAM", ""},
       {"interface", "see `lockstep launch`", "NAME", ""},
       {"dry-run", "only print the script"}},
      1};
  for (Option o : search_options()) {
    o.help = "with --sweep: " + o.help;
    submit.options.push_back(std::move(o));
  }
  return {submit};
}

int submit_command(const App& app, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(submit_forms(), given);
  if (a.help) return 0;
  BatchJob job = job_of(a);
  const int64_t restarts = a.integer("restarts", 0, 1'000'000), all = int64_t{job.nodes} * job.ranks_per_node;
  require(all <= kMostRanks, ExitCode::kUsage, "submit: ", all, " ranks are more than ", kMostRanks);
  const auto ranks = static_cast<int>(all);
  const std::string dir = check_runs(app, a, ranks, job);
  job.name = job_name(dir);
  job.folder = job_folder(dir);
  job.directory = std::filesystem::current_path().string();
  job.command = job_command(a, job, ranks, restarts);
  const std::string script = job_script(job, template_of(a));
  if (a.has("dry-run")) print_out(script);
  else submit(job, dir, script);
  return 0;
}

}  // namespace lockstep
