#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/log.h"
#include "launch/artifacts/files.h"
#include "launch/artifacts/run_dir.h"
#include "launch/cluster/submitted.h"
#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/commands/sweep_points.h"
#include "launch/config/settings.h"
#include "launch/config/sweep_grammar.h"

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

}  // namespace

std::vector<Command> submit_forms() {
  return {
      {"submit",
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
       1}};
}

int submit_command(const App& app, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(submit_forms(), given);
  if (a.help) return 0;
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
  const int64_t restarts = a.integer("restarts", 0, 1'000'000);
  const int64_t ranks = int64_t{job.nodes} * job.ranks_per_node;
  require(ranks <= kMostRanks, ExitCode::kUsage, "submit: ", ranks, " ranks are more than ", kMostRanks);
  const std::string sweep = a.text("sweep");
  std::string dir = sweep;
  if (sweep.empty()) {
    std::shared_ptr<Settings> s =
        load_settings(app, ConfigTree::load(a.positional[0], a.rest()), static_cast<int>(ranks));
    dir = s->run.dir;
    ModelTrials().add(std::move(s), static_cast<int>(ranks), a.positional[0]);
  } else {
    SweepSpec spec{a.positional[0], static_cast<int>(ranks), SweepGrid::parse(a.rest(), choices_of_keys(app)), {}};
    check_points(app, spec);
    job.points = spec.grid.points();
    job.at_once = a.integer("at-once", 0);
  }
  job.name = job_name(dir);
  job.folder = job_folder(dir);
  job.directory = std::filesystem::current_path().string();
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const std::string time_left = cat(std::max<int64_t>(1, job.seconds - job.warning));  // PBS sends no signal before
  if (sweep.empty()) {
    job.command = {program, "launch", "-n", cat(ranks), "--restarts", cat(restarts)};
    for (const char* option : {"remote-shell", "interface"})
      if (!a.text(option).empty()) job.command.insert(job.command.end(), {cat("--", option), a.text(option)});
    if (job.scheduler == "pbs") job.command.insert(job.command.end(), {"--time", time_left});
    job.command.insert(job.command.end(), {"--", "train", a.positional[0]});
    for (const std::string& o : a.rest()) job.command.push_back(o);
    job.command.emplace_back("run.resume=auto");
  } else {
    job.command = {program, "sweep", a.positional[0]};
    for (const std::string& o : a.rest()) job.command.push_back(o);
    job.command.insert(job.command.end(), {"--dir", sweep, "--ranks", cat(ranks)});
    if (job.scheduler == "pbs") job.command.insert(job.command.end(), {"--time", time_left});
    job.command.emplace_back("--array");
  }
  std::string own;
  if (!a.text("template").empty()) {
    std::ifstream file(a.text("template"));
    require(file.good(), ExitCode::kMissingInput, "the template ", a.text("template"), " cannot be read");
    own.assign(std::istreambuf_iterator<char>(file), {});
  }
  const std::string script = job_script(job, own);
  if (a.has("dry-run")) {
    print(script);
    return 0;
  }
  if (const auto before = submitted_job(dir))
    if (const JobState s = job_state(before->scheduler, before->id); !s.state.empty())
      throw Error(ExitCode::kOutputLocked, cat("run.dir ", dir, " belongs to job ", before->id, ", which is ", s.state,
                                               ": cancel it, or choose another run.dir"));
  std::error_code error;
  std::filesystem::create_directories(job.folder, error);
  if (error) fail_write(job.folder, error.value());
  for (const char* old : {"/cancelled", "/more_jobs"}) std::filesystem::remove(job.folder + old, error);
  const std::string path = job.folder + "/submit.sh";
  replace_file(path, script);
  const std::string id = submit_script(job, path);
  keep_submitted_job(dir, {job.scheduler, id});
  print(cat("job ", id, "\n"));
  log_info(cat("submitted ", path, " as job ", id, "; see it by `lockstep status ", dir, "`"));
  return 0;
}

}  // namespace lockstep
