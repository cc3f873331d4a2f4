#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

#include "comm/mpi/mpi_comm.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/text_table.h"
#include "core/device/backend.h"
#include "core/device/thread_pool.h"
#include "core/io/files.h"
#include "launch/arguments/command_line.h"
#include "launch/arguments/job_place.h"
#include "launch/cluster/absent_machines.h"
#include "launch/cluster/attempt.h"
#include "launch/cluster/batch.h"
#include "launch/cluster/process_view.h"
#include "launch/cluster/restart.h"
#include "launch/commands/commands.h"
#include "launch/config/settings.h"
#include "launch/http/metrics_server.h"
#include "launch/process/child_process.h"
#include "launch/process/control.h"
#include "launch/records/prometheus.h"
#include "launch/records/run_dir.h"
#include "launch/records/run_status.h"
#include "launch/recovery/memory_holder.h"
#include "launch/terminal/output.h"
#include "launch/terminal/progress.h"
#include "launch/training/loop/step_plan.h"
#include "launch/world/memory_report.h"
#include "launch/world/temp_dir.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

// Signals that have arrived and not been handed on, as bits.
std::atomic<uint64_t> signals{0};
static_assert(std::atomic<uint64_t>::is_always_lock_free);
void catch_signals() {
  for (int s : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP, SIGTSTP})
    if (std::signal(s, [](int number) { signals |= uint64_t{1} << number; }) == SIG_IGN &&
        (s == SIGHUP || s == SIGTSTP))
      std::signal(s, SIG_IGN);  // ignored before, as under nohup: keep it so
}
int next_signal() {
  const uint64_t all = signals;
  if (all == 0) return 0;
  const int number = __builtin_ctzll(all);
  signals &= ~(uint64_t{1} << number);
  return number;
}

// What the launcher needs to know of a job's command; only training has a run directory to come back to.
struct Target {
  std::vector<std::string> command;    // as it was given
  std::unique_ptr<Settings> settings;  // of training; null: another command
};

Target target_of(const App& app, const std::vector<std::string>& command, int ranks) {
  Target t;
  t.command = command;
  const auto known =
      std::find_if(commands().begin(), commands().end(), [&](const CommandEntry& e) { return e.name == command[0]; });
  require(known != commands().end() && command[0] != "launch" && command[0] != "agent", ExitCode::kUsage, "launch: '",
          command[0], "' is not a command that ranks can run; e.g. `lockstep launch -n 2 -- train FILE.yaml`");
  if (command[0] != "train") return t;
  const Arguments a = parse_arguments(train_forms(), {command.begin() + 1, command.end()});
  require(!a.help && a.ranks() == 0, ExitCode::kUsage, "launch: -n says how many ranks train; leave --ranks out");
  ConfigTree tree = ConfigTree::load(a.positional[0], a.rest());
  const bool resume = a.has("resume") || resumes(tree);
  t.settings = load_settings(app, std::move(tree), ranks, resume);
  return t;
}

// What to type instead, where an MPI launcher started this process.
std::string within_another(const std::vector<std::string>& given, std::vector<std::string>::const_iterator split) {
  const bool srun = std::getenv("SLURM_STEP_ID") && !std::getenv("OMPI_COMM_WORLD_RANK");
  const std::string all = shell_line(given), command = shell_line({split + 1, given.end()});
  return str("this process was itself started by ", srun ? "srun" : "an MPI launcher",
             "; either start it once: `lockstep launch ", all, "`, without ",
             srun ? "srun, in the job (it takes the job's hosts)" : "mpirun or srun", "; or leave launch out: `",
             srun ? "srun --mpi=pmix" : "mpirun -n N", " lockstep ", command, "`");
}

// The command of an attempt that comes back: from the newest checkpoint, or from the newest one at or before a step.
std::vector<std::string> coming_back(const Target& t, int64_t at_most) {
  std::vector<std::string> out;
  // A first --at-most does not apply again: the run has gone on from there.
  for (size_t i = 0; i < t.command.size(); ++i) {
    if (t.command[i] == "--at-most") ++i;
    else if (!t.command[i].starts_with("--at-most=")) out.push_back(t.command[i]);
  }
  const auto add = [&](const std::string& word) {
    if (std::find(out.begin(), out.end(), word) == out.end()) out.push_back(word);
  };
  add("--resume");
  // Where it was derived from the first number of ranks, it must stay as it was: the bits depend on it.
  if (!t.settings->config.given("batch.micro")) add(str("batch.micro=", t.settings->batch.micro));
  if (at_most >= 0) add(str("--at-most=", at_most));
  return out;
}

// Throws ExitCode::kDevice if a rank of fewer ranks would not fit into the memory of a machine like this one.
void require_memory(const Target& t, const JobPlace& p) {
  if (t.settings->device.choice != DeviceChoice::kCpu) return;  // other machines' GPUs cannot be asked from here
  int most = p.ranks;
  if (!p.hosts.empty())
    most = std::max_element(p.hosts.begin(), p.hosts.end(), [](auto& x, auto& y) { return x.slots < y.slots; })->slots;
  const int64_t limit = available_memory() / std::min(most, p.ranks);
  if (limit == 0) return;
  int64_t needed = 0;
  try {
    make_plannable(*t.settings);
    SharedData data(*t.settings);
    const StepPlan plan = plan_step(*t.settings, data, p.ranks, PlannedRanks::kFirst);
    needed = memory_of(plan, true) - plan.in_memory;  // which is there already, or freed for it; the ranks look
  } catch (const Error&) {
    return;  // the ranks will say what is wrong
  }
  require(needed <= limit, ExitCode::kDevice, "with ", p.ranks, " ranks, one takes ", bytes_text(needed),
          " at sharding.level: ", to_text(t.settings->parallel.level), ", and ", bytes_text(limit),
          " of memory are free for each: not restarted");
}

JsonObject failure_of(const std::string& dir) {
  return parse_json_object(read_head(RunPaths{dir}.failure(), 1 << 16)).value_or(JsonObject{});
}

std::vector<JsonObject> rank_lines(const std::vector<RankView>& ranks, int attempt) {
  std::vector<JsonObject> out{{{"launcher", int64_t{::getpid()}},
                               {"started", start_time(::getpid())},
                               {"host", host_name()},
                               {"attempt", int64_t{attempt}}}};
  for (const RankView& r : ranks)
    out.push_back({{"rank", int64_t{r.rank}},
                   {"host", r.host},
                   {"process", r.process},
                   {"state", std::string(1, r.state ? r.state : '?')},
                   {"step", r.step.step},
                   {"step_ms", r.step.step_ms},
                   {"waited_ms", r.step.waited_ms},
                   {"cpu_s", r.cpu_s},
                   {"doing", r.call.what.empty() ? r.phase.what : r.call.what}});
  return out;
}

// Does the scheduler end the job that this process is part of?
bool is_ending(const Allocation& a) {
  if (a.scheduler != "Slurm") return false;
  const std::string state = job_state("slurm", a.job).state;
  return !state.empty() && state != "RUNNING";
}

// Runs a command of the user's, such as one that sends a message; a minute at most.
void tell(const Target& t, const std::string& command, int code, const std::string& message) {
  if (command.empty()) return;
  ::setenv("LOCKSTEP_RUN", t.settings->run.dir.c_str(), 1);
  ::setenv("LOCKSTEP_EXIT_CODE", str(code).c_str(), 1);
  ::setenv("LOCKSTEP_MESSAGE", message.c_str(), 1);
  const int status = std::system(shell_line({"timeout", "60", "sh", "-c", command}).c_str());
  if (status != 0) log_warning(str("the command '", command, "' failed"));
  for (const char* name : {"LOCKSTEP_RUN", "LOCKSTEP_EXIT_CODE", "LOCKSTEP_MESSAGE"}) ::unsetenv(name);
}

std::string attempt_text(const JobPlace& p) {
  return str(p.ranks, p.ranks == 1 ? " rank" : " ranks", p.hosts.empty() ? "" : str(" on ", hosts_text(p.hosts)));
}

// A job that is started, watched, and started again after a failure as often as it may be.
class LaunchedJob {
 public:
  LaunchedJob(const App& app, const Arguments& a, const std::vector<std::string>& command)
      : app_(app),
        place_(place_of(a)),
        whole_(place_),
        target_(target_of(app, command, place_.ranks)),
        allocation_(current_allocation()),
        ends_(a.integer("time", 0) > 0 ? steady_now() + static_cast<double>(a.integer("time", 0)) : -1),
        options_(options_of(a)),
        absent_(place_.hosts, options_.mpirun.remote_shell),
        policy_(restarts_of(a)) {
    options_.next_signal = [this] { return signal_for_ranks(); };
    options_.decided = [this](const Diagnosis& v, int64_t last_step) { decide(v, last_step); };
    if (target_.settings && target_.settings->recovery.from == RecoveryOptions::From::kMemory) {
      const std::string other = other_machine(place_.hosts);
      // Where mpirun starts its daemons by srun, Slurm ends all that they have started when an attempt fails.
      std::vector<std::string> nodes;
      if (allocation_.scheduler == "Slurm" && options_.mpirun.remote_shell.empty() && installed_scheduler() == "slurm")
        for (const Host& host : place_.hosts) nodes.push_back(host.name);
      holders_.emplace(other.empty() ? other : local_address_towards(other), options_.patience.silence, nodes);
      options_.exported.emplace_back(kMemoryHolder);
      options_.environment.emplace_back(kMemoryHolder, holders_->environment());
    }
    if (target_.settings) options_.view = [this](const std::vector<RankView>& ranks) { show(ranks); };
    prepare(target_.command);
  }

  std::string run_dir() const { return target_.settings ? target_.settings->run.dir : ""; }
  std::string line() const { return attempt_line(options_); }

  // Returns the exit code.
  int run() {
    require_temporary_folder();
    log_info(str("starting ", attempt_text(place_), ": ", line()));
    if (::isatty(STDERR_FILENO) && target_.settings) {
      options_.plain = false;  // one bar for all ranks: this one
      options_.progress = [this](const FlightStep& s) { draw(s); };
    }
    catch_signals();
    for (;; ++options_.number) {
      const AttemptResult result = run_attempt(options_);
      if (bar_ && result.code == 0) bar_->finish();
      bar_.reset();
      if (target_.settings) ::unlink(ranks_path(target_.settings->run.dir).c_str());
      if (!continues_after(result)) {
        if (target_.settings)
          tell(target_, target_.settings->launch.on_end, result.code, result.diagnosis ? result.diagnosis->text : "");
        return result.code;
      }
      prepare_next();
      if (!pause()) return static_cast<int>(ExitCode::kSaved);
    }
  }

 private:
  AttemptOptions options_of(const Arguments& a) const {
    AttemptOptions o;
    o.mpirun.program = a.text("mpirun");
    o.mpirun.version = mpirun_version(o.mpirun.program);
    o.mpirun.interface = a.text("interface");
    if (!o.mpirun.interface.empty() && !place_.hosts.empty()) require_interface(o.mpirun.interface);
    o.mpirun.remote_shell = a.text("remote-shell");
    o.mpirun.binding = a.text("bind");
    require(std::set<std::string>{"none", "core", "numa", "socket"}.count(o.mpirun.binding), ExitCode::kUsage,
            "--bind ", o.mpirun.binding, ": must be none, core, numa or socket");
    o.agent = program_path();
    o.mpirun.own = o.agent;
    add_environment(a.text("env"), o);
    if (!allocation_.scheduler.empty() && o.agent.find_first_of(" \t'\"") == std::string::npos)
      o.mpirun.shield = o.agent + " agent --shield";
    o.start_within = static_cast<double>(a.integer("start-within", 1, 86400));
    o.verbose = a.has("verbose");
    if (target_.settings) {
      o.patience.silence = target_.settings->launch.silence;
      o.patience.deadline = target_.settings->deadline;
    }
    o.patience.warn_silence = std::min(o.patience.warn_silence, o.patience.silence / 2);
    return o;
  }

  int64_t restarts_of(const Arguments& a) const {
    int64_t restarts = target_.settings ? target_.settings->launch.restarts : 0;
    if (!a.text("restarts").empty()) restarts = a.integer("restarts", 0, 1'000'000);
    require(restarts == 0 || target_.settings, ExitCode::kUsage,
            "--restarts: only training can go on from a checkpoint");
    return restarts;
  }

  void prepare(const std::vector<std::string>& words) {
    options_.mpirun.ranks = place_.ranks;
    options_.mpirun.hosts = place_.hosts;
    options_.mpirun.crowded = place_.crowded;
    options_.mpirun.command = {program_path()};
    options_.mpirun.command.insert(options_.mpirun.command.end(), words.begin(), words.end());
  }

  // What the ranks get, and SIGTSTP for this process: what came from outside, what --time asks for, or what lets them
  // save so that a machine joins.
  int signal_for_ranks() {
    if (holders_) holders_->look();
    if (growing_) {
      const int number = next_signal();
      if (number == SIGTSTP) return number;
      if (number == SIGTERM || number == SIGINT || number == SIGHUP) growing_ = false;  // they save, and end for good
      return 0;
    }
    if (ends_ > 0 && !time_is_over_ && steady_now() > ends_) {
      time_is_over_ = true;
      log_info("the time given by --time is over: the ranks save and end");
      return SIGUSR1;
    }
    if (const int number = next_signal(); number != 0 || !target_.settings || !target_.settings->launch.grow)
      return number;
    const std::string host = absent_.ask(steady_now());
    if (host.empty()) return 0;
    growing_ = true;
    log_info(str(host, " answers again: the ranks save, and go on with it"));
    return SIGUSR1;
  }

  void draw(const FlightStep& s) {
    if (!bar_) {
      ProgressOptions shown;
      shown.title = "train";
      shown.total = s.total;
      shown.start = s.step;
      bar_ = std::make_unique<Progress>(shown);
    }
    bar_->set(s.step, str("loss ", fixed(s.loss, 4), "  ", short_number(s.items_per_s), " items/s"));
  }

  // For `status` and `top`.
  void show(const std::vector<RankView>& ranks) {
    const std::string& dir = target_.settings->run.dir;
    if (!held_) held_ = Descriptor(::open(dir.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (held_) write_ranks(dir, rank_lines(ranks, options_.number));
  }

  void decide(const Diagnosis& v, int64_t last_step) {
    bar_.reset();
    if (target_.settings && v.code == ExitCode::kRankLost && RunDir::holds_a_run(target_.settings->run.dir))
      write_failure(target_.settings->run.dir, {v.code, v.rank, v.step, v.text});
    const JsonObject failure =
        target_.settings && v.code == ExitCode::kRanksDisagree ? failure_of(target_.settings->run.dir) : JsonObject{};
    equal_ = integer_of(failure, "equal_step", -1);
    decision_ = policy_.decide(v.code, last_step, equal_);
    absent_.add(v.lost_hosts);
    if (decision_.again && json_bool(failure, "miscomputes").value_or(false)) leave_out(v.host);
    if (decision_.again) log_warning(v.text);
    else log_error(v.advice.empty() ? v.text : str(v.text, "; ", v.advice));
  }

  // A machine whose processor computes wrongly.
  void leave_out(const std::string& host) {
    faulty_.insert(host);
    if (!without(without(whole_.hosts, absent_.names()), faulty_).empty()) return;
    decision_ = {};
    decision_.why_not = "there is no other machine to go on with: not restarted";
  }

  bool continues_after(const AttemptResult& result) {
    const bool joins = std::exchange(growing_, false), stopped = result.asked_to_stop && !joins;
    if (joins && !result.diagnosis && result.code == static_cast<int>(ExitCode::kSaved)) {
      decision_ = {true, "", 0};
      equal_ = -1;
      return true;
    }
    if (!result.diagnosis) return false;
    if (target_.settings) tell(target_, target_.settings->launch.on_failure, result.code, result.diagnosis->text);
    if (decision_.again && (stopped || is_ending(allocation_))) {
      log_info(stopped ? "it was asked to stop: not restarted" : "the job is being ended: not restarted");
      return false;
    }
    if (!decision_.again && !decision_.why_not.empty()) log_info(decision_.why_not);
    return decision_.again;
  }

  // The next attempt goes on with the machines that are left.
  void prepare_next() {
    absent_.remove_answering();
    place_ = whole_;
    place_.hosts = without(without(whole_.hosts, absent_.names()), faulty_);
    if (!whole_.hosts.empty()) place_.ranks = std::min(whole_.ranks, total_slots(place_.hosts));
    require(whole_.hosts.empty() || !place_.hosts.empty(), ExitCode::kRankLost, "no machine is left to go on with");
    const auto words = coming_back(target_, equal_);
    // Fewer ranks may not suit sharding.group: then the next smaller number that does.
    Target next;
    while (!next.settings) {
      try {
        next = target_of(app_, words, place_.ranks);
      } catch (const Error&) {
        if (place_.ranks == 1) throw;
        --place_.ranks;
      }
    }
    if (place_.ranks < options_.mpirun.ranks) require_memory(next, place_);
    prepare(words);
    log_info(str("attempt ", options_.number + 1, ": ", attempt_text(place_),
                 holders_ ? ", from memory or the newest valid checkpoint" : ", from the newest valid checkpoint",
                 equal_ >= 0 ? str(" at or before step ", equal_) : ""));
  }

  // Returns false where the job was asked to stop meanwhile.
  bool pause() const {
    const auto asked_to_stop = [] { return (signals & ~(uint64_t{1} << SIGTSTP)) != 0; };
    for (double waited = 0; waited < decision_.pause_s && !asked_to_stop(); waited += 0.05) ::usleep(50'000);
    return !asked_to_stop();
  }

  const App& app_;
  JobPlace place_;        // of the present attempt
  const JobPlace whole_;  // with all machines
  const Target target_;
  const Allocation allocation_;
  const double ends_;  // by --time; negative: no limit
  AttemptOptions options_;
  std::optional<MemoryHolders> holders_;  // where recovery.from is memory
  AbsentMachines absent_;
  std::set<std::string> faulty_;  // machines that compute wrongly, which never come back
  RestartPolicy policy_;
  RestartPolicy::Decision decision_;
  int64_t equal_ = -1;    // the last step after which replicas were equal; -1: not asked for
  bool growing_ = false;  // the ranks were asked to save, so that a machine joins
  bool time_is_over_ = false;
  std::unique_ptr<Progress> bar_;
  Descriptor held_;  // the run directory, by which `cancel` knows this process again
};

}  // namespace

std::vector<Command> launch_forms() {
  return {
      {"launch",
       "launch [-n N] [--hosts a:8,b:8 | --hostfile FILE] [--restarts K] [options] -- COMMAND ...",
       "Starts `lockstep COMMAND ...` on N ranks by mpirun, on this machine or on several, and watches them: a rank\n"
       "that dies ends the job within a second, one that is stopped, unreachable or stuck is named and given up\n"
       "after a while.\n"
       "The exit code is that of the rank that failed first, 69 for a lost one. In a job of Slurm or PBS the hosts\n"
       "are those of the job. With --restarts the run goes on from its newest valid checkpoint, on the machines that\n"
       "are left. SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2 are handed on to the ranks, which save and end with "
       "75.\n"
       "Ctrl-Z stops the launcher alone: the ranks go on, and `fg` or `bg` lets it watch them again.",
       {{"ranks,n", "ranks; 0: as many as the hosts have slots, or this machine GPUs, or 1", "N", "0"},
        {"hosts", "machines and how many ranks each takes: a:8,b:8  n[1-4]:8  me@a:8  [fd00::2]:8", "LIST", ""},
        {"hostfile", "a file with a line for each machine: name slots=8", "FILE", ""},
        {"env", "an environment variable for the ranks of all machines, NAME or NAME=VALUE; several times", "NAME", "",
         true},
        {"restarts", "how often to come back after a failure; empty: launch.restarts of the configuration", "K", ""},
        {"interface", "network interface between the machines, such as eth0", "NAME", ""},
        {"bind", "bind ranks to: none, core, numa or socket", "WHAT", "none"},
        {"remote-shell", "in place of ssh", "PROGRAM", ""},
        {"mpirun", "Open MPI's mpirun", "PROGRAM", "mpirun"},
        {"start-within", "seconds until all ranks must have been started", "S", "60"},
        {"time", "seconds after which the ranks save and end with 75; 0: no limit", "S", "0"},
        {"metrics-port", "answer http://127.0.0.1:PORT/metrics for Prometheus; ADDRESS:PORT: there; 0: any free port",
         "PORT", ""},
        {"dry-run", "only print the mpirun command"},
        {"verbose,v", "also show what mpirun says, and what the control plane carried"}}}};
}

int launch_command(const App& app, const std::vector<std::string>& given) {
  const auto split = std::find(given.begin(), given.end(), "--");
  const Arguments a = parse_arguments(launch_forms(), {given.begin(), split});
  if (a.help) return 0;
  require(split != given.end() && split + 1 != given.end() && a.positional.empty(), ExitCode::kUsage,
          "launch: what should the ranks run? It stands after --, e.g. `lockstep launch -n 2 -- train FILE.yaml`");
  require(!mpi_launched(), ExitCode::kUsage, "launch: ", within_another(given, split));
  LaunchedJob job(app, a, {split + 1, given.end()});
  if (a.has("dry-run")) {
    print_out(job.line() + "\n");
    return 0;
  }
  std::optional<MetricsServer> metrics;
  if (const std::string& port = a.text("metrics-port"); !port.empty()) {
    const std::string dir = job.run_dir();
    require(!dir.empty(), ExitCode::kUsage, "--metrics-port: only training has metrics");
    metrics.emplace(port, [dir] { return prometheus_text({{dir, read_run_status(dir)}}); });
    log_info("metrics for Prometheus: " + metrics->url());
  }
  return job.run();
}

}  // namespace lockstep
