#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <sstream>

#include "comm/mpi_comm.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/device/backend.h"
#include "core/device/thread_pool.h"
#include "data/streams/data_identity.h"
#include "launch/artifacts/files.h"
#include "launch/cluster/child_process.h"
#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/commands/sweep_points.h"
#include "launch/commands/sweep_record.h"
#include "launch/config/settings.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
using Words = std::vector<std::string>;

constexpr double kMoment_s = 0.1;  // until points that wait for another process's end are looked at again

double seconds_of_run(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// How many points run at a time, and what each may use.
struct Share {
  int jobs = 1;
  int64_t threads = 0;  // compute threads of a rank, where the configuration leaves them open; 0: do not say
  Words gpus;           // as CUDA_VISIBLE_DEVICES names them; empty: not shared out
};

Words visible_gpus(const Settings& s) {
  if (s.device.choice == DeviceChoice::kCpu || !has_gpu_driver()) return {};
  const DeviceBackend* backend = find_device_backend();
  Words out;
  if (const char* limit = std::getenv("CUDA_VISIBLE_DEVICES")) {
    std::istringstream list(limit);
    for (std::string word; std::getline(list, word, ',');) out.push_back(word);
  } else {
    for (int i = 0; backend && i < backend->count(); ++i) out.push_back(str(i));
  }
  return backend ? out : Words{};
}

Share share_of(const Settings& s, int64_t asked_jobs, int ranks) {
  Share out;
  const int64_t cores = available_cores(), threads = s.compute.threads;
  out.gpus = visible_gpus(s);
  const auto gpus = static_cast<int64_t>(out.gpus.size());
  const int64_t fit = gpus > 0 ? gpus / ranks : threads > 0 ? cores / (ranks * threads) : 1;
  out.jobs = static_cast<int>(asked_jobs > 0 ? asked_jobs : std::max<int64_t>(1, fit));
  if (out.jobs * ranks > gpus) out.gpus.clear();
  if (threads == 0 && out.jobs > 1) out.threads = std::max<int64_t>(1, cores / (out.jobs * ranks));
  return out;
}

// Starts or goes on with a point.
Words command_of(const SweepSpec& spec, const std::string& dir, int64_t point, int64_t threads) {
  Words words{program_path()};
  const bool processes = spec.ranks > 1 && mpi_built();
  if (processes) words.insert(words.end(), {"launch", "-n", str(spec.ranks), "--"});
  words.insert(words.end(), {"train", spec.file});
  for (const std::string& o : spec.grid.overrides(point)) words.push_back(o);
  words.push_back(str("run.dir=", dir));
  if (threads > 0) words.push_back(str("compute.threads=", threads));
  if (spec.ranks > 1 && !processes) words.insert(words.end(), {"--ranks", str(spec.ranks)});
  words.push_back("--resume");
  return words;
}

// A sweep that runs: each point as a process of its own, in a process group of its own, which gets SIGTERM when this
// process is asked to stop or ends.
class Sweep {
 public:
  // `data`: that of each point of the grid. `seconds`: after which all save and end; 0: no limit.
  Sweep(SweepRecord& record, Share share, const std::vector<DataOptions>& data, int64_t seconds)
      : record_(record), share_(std::move(share)), data_(data), seconds_(seconds) {
    for (int slot = share_.jobs; slot-- > 0;) free_slots_.push_back(slot);
    ::sigemptyset(&awaited_);
    std::signal(SIGCHLD, SIG_DFL);  // ignored, children would leave no exit code
    ::sigaddset(&awaited_, SIGCHLD);
    for (int s : {SIGTERM, SIGINT, SIGUSR1, SIGUSR2, SIGHUP}) {
      struct sigaction now = {};
      ::sigaction(s, nullptr, &now);
      if (now.sa_handler != SIG_IGN) ::sigaddset(&awaited_, s);  // as SIGHUP is under nohup
    }
    ::pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
  }
  ~Sweep() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  Sweep(const Sweep&) = delete;

  // Runs the points that have not ended with 0. Returns the exit code.
  int run(const std::vector<int64_t>& points) {
    std::deque<int64_t> waiting;
    for (int64_t p : points) {
      const auto end = record_.end_of(p);
      if (!end || end->code != 0) waiting.push_back(p);
    }
    total_ = static_cast<int64_t>(points.size());
    done_ = total_ - static_cast<int64_t>(waiting.size());
    if (done_ > 0)
      log_info(str(done_, " of ", total_, total_ == 1 ? " point has" : " points have", " finished before"));
    for (;;) {
      bool held = false;  // are those that could start
      while (!stopping_ && !waiting.empty() && !free_slots_.empty()) {
        const auto next = std::find_if(waiting.begin(), waiting.end(), [&](int64_t p) { return !is_held(p); });
        held = next == waiting.end();
        if (held) break;
        const int64_t point = *next;
        waiting.erase(next);
        start(point);
      }
      if (running_.empty() && (stopping_ || waiting.empty())) break;
      wait_for_news(held);
    }
    if (stopping_ && (interrupted_ || !waiting.empty())) {
      log_info("stopped on request; repeat the same command to go on");
      return static_cast<int>(ExitCode::kSaved);
    }
    return failures_.empty() ? 0 : failures_.begin()->second;
  }

 private:
  struct Running {
    int64_t point = 0;
    int slot = 0;
    Clock::time_point since;
  };

  std::string named(int64_t point) const {
    return str("point ", SweepRecord::name(point), " (", record_.spec().grid.text(point), ")");
  }

  // By a process that still saves, as those of a sweep that was killed do; it is named.
  bool is_held(int64_t point) {
    const std::string owner = RunDir::holder(record_.point_dir(point));
    if (!owner.empty() && told_.insert(point).second)
      log_info(str(named(point), ": ", owner, " still works in ", record_.point_dir(point),
                   "; it is waited for, as one is that an earlier sweep left and that saves"));
    return !owner.empty();
  }

  void start(int64_t point) {
    make_folder(record_.point_dir(point));
    try {
      record_.require_same_data(file_identities(data_[static_cast<size_t>(point)]));
    } catch (const Error& e) {
      const int code = static_cast<int>(e.code());
      record_.write_end(point, {code, record_.end_of(point).value_or(PointEnd()).seconds});
      failures_[point] = code;
      return log_warning(str(named(point), ": not started: ", e.what(), "; ", ++done_, " of ", total_));
    }
    const Descriptor log = open_to_append(record_.log(point));
    if (!log) fail_write(record_.log(point), errno);
    const Words words = command_of(record_.spec(), record_.point_dir(point), point, share_.threads);
    const int slot = free_slots_.back();
    std::string gpus;
    const auto ranks = static_cast<size_t>(record_.spec().ranks), first = static_cast<size_t>(slot) * ranks;
    for (size_t i = first; !share_.gpus.empty() && i < first + ranks; ++i)
      gpus += (i > first ? "," : "") + share_.gpus[i];
    ChildStart start{.command = words, .output = log.number(), .errors = log.number()};
    if (!gpus.empty()) start.environment.emplace_back("CUDA_VISIBLE_DEVICES", gpus);
    const pid_t child = start_child(start);
    free_slots_.pop_back();
    running_[child] = {point, slot, Clock::now()};
  }

  // Until a signal arrives; with `held`, for a moment at most.
  void wait_for_news(bool held) {
    int signal = 0;
    const bool limited = seconds_ > 0 && !stopping_;
    if (!held && !limited) {
      signal = ::sigwaitinfo(&awaited_, nullptr);
    } else {
      const double left = limited ? std::max(0.0, static_cast<double>(seconds_) - seconds_of_run(begun_)) : kMoment_s;
      const double most = held ? std::min(left, kMoment_s) : left;
      const timespec wait{static_cast<time_t>(most), static_cast<long>(1e9 * (most - std::floor(most)))};
      signal = ::sigtimedwait(&awaited_, nullptr, &wait);
      if (signal < 0 && errno == EAGAIN && limited && most == left) {
        log_info("the time given by --time is over");
        signal = SIGUSR1;
      }
    }
    if (signal > 0 && signal != SIGCHLD) {
      if (!stopping_) log_info(str("stopping: ", running_.size(), " points save and end"));
      stopping_ = true;
      for (const auto& [child, _] : running_) ::kill(child, SIGTERM);
    }
    int status = 0;
    for (pid_t child; (child = ::waitpid(-1, &status, WNOHANG)) > 0;)
      if (running_.count(child)) ended(child, status);
  }

  void ended(pid_t child, int status) {
    const Running r = running_[child];
    running_.erase(child);
    free_slots_.push_back(r.slot);
    const bool killed = WIFSIGNALED(status);
    const int code = killed ? static_cast<int>(ExitCode::kRankLost) : WEXITSTATUS(status);
    // Before its first step a process that is asked to stop may end by the signal itself.
    const bool stopped =
        code == static_cast<int>(ExitCode::kSaved) || (stopping_ && killed && WTERMSIG(status) == SIGTERM);
    const auto before = record_.end_of(r.point);
    const PointEnd end{stopped ? static_cast<int>(ExitCode::kSaved) : code,
                       seconds_of_run(r.since) + (before ? before->seconds : 0)};
    record_.write_end(r.point, end);
    const std::string what = named(r.point);
    if (stopped && stopping_) {
      interrupted_ = true;
      return log_info(str(what, ": stopped"));
    }
    ++done_;
    const std::string of = str("; ", done_, " of ", total_);
    if (code == 0) {
      const PointResult result = record_.result(r.point);
      char loss[32];
      std::snprintf(loss, sizeof loss, "%.4f", result.loss.value_or(0));
      return log_info(str(what, ": ", result.validation ? "validation loss " : "loss ", result.loss ? loss : "unknown",
                          ", step ", result.steps, of));
    }
    failures_[r.point] = end.code;
    log_warning(str(what, killed ? str(": killed by signal ", WTERMSIG(status)) : str(": exit code ", end.code),
                    ", see ", record_.log(r.point), of));
  }

  SweepRecord& record_;
  const Share share_;
  const std::vector<DataOptions>& data_;
  const int64_t seconds_;
  const Clock::time_point begun_ = Clock::now();
  sigset_t awaited_ = {}, before_ = {};
  std::vector<int> free_slots_;
  std::map<pid_t, Running> running_;
  std::map<int64_t, int> failures_;  // exit codes by point
  std::set<int64_t> told_;           // held points that were named
  int64_t total_ = 0, done_ = 0;
  bool stopping_ = false, interrupted_ = false;
};

void print_results(const SweepRecord& record, bool as_json) {
  const std::vector<PointResult> results = record.results();
  record.write(results);
  if (!as_json) return print_out(record.table(results));
  for (const PointResult& r : results) print_out(json_line(record.json(r)) + "\n");
}

void print_plan(const SweepSpec& spec, const std::string& dir, bool as_json, int64_t threads) {
  for (int64_t p = 0; p < spec.grid.points(); ++p) {
    const std::string place = str(dir, "/", SweepRecord::name(p));
    const std::string line = shell_line(command_of(spec, place, p, threads));
    if (!as_json) print_out(str(SweepRecord::name(p), "  ", spec.grid.text(p), "\n    ", line, "\n"));
    else
      print_out(json_line({{"point", p}, {"dir", place}, {"values", values_json(spec.grid, p)}, {"command", line}}) +
                "\n");
  }
}

}  // namespace

std::vector<Command> sweep_forms() {
  return {
      {"sweep",
       "sweep FILE.yaml key=a,b key2='range(1,4)' ... [--jobs J] [--dir DIR] [--dry-run] | sweep --collect DIR",
       "Trains FILE.yaml with every combination of the values that are given, each as a run of its own in DIR/000,\n"
       "DIR/001, ... (the first key changes slowest), and prints their losses, lowest first, also to DIR/sweep.csv "
       "and\n"
       "DIR/sweep.json. Values of a key: a,b  choice(a,b)  range(start,stop,step), without the stop  glob(adam*), "
       "over\n"
       "the choices of a key such as optim.name. A value with commas stands in brackets or quotes. A run that fails "
       "does\n"
       "not end the others; the exit code is that of the first one that failed. SIGTERM, SIGINT, SIGHUP, SIGUSR1 or\n"
       "SIGUSR2: all runs save and end, exit code 75. The same command again goes on: what has finished is not "
       "repeated.",
       {{"jobs", "runs at a time; 0: as many as the cores, or the GPUs, are enough for", "J", "0"},
        {"ranks", "ranks of each run, as processes of `lockstep launch`", "N", "1"},
        {"dir", "directory of the sweep; empty: run.dir of the configuration and -sweep", "DIR", ""},
        {"dry-run", "only check all configurations and print the commands"},
        {"time", "seconds after which all runs save and end with 75; 0: no limit", "S", "0"},
        {"array", "run only this point, for a job array of a scheduler", "I", ""},
        {"collect", "only print and write the results of the sweep in this directory", "DIR", ""},
        {"json", "print one JSON object per point"}}}};
}

int sweep_command(const App& app, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(sweep_forms(), given);
  if (a.help) return 0;
  require(!mpi_launched(), ExitCode::kUsage, "sweep: this process was itself started by an MPI launcher; ",
          "start `lockstep sweep` once, without mpirun or srun");
  if (!a.text("collect").empty()) {
    require(a.positional.empty(), ExitCode::kUsage, "sweep: --collect takes no other argument than the directory");
    print_results(SweepRecord(a.text("collect")), a.has("json"));
    return 0;
  }
  require(!a.positional.empty(), ExitCode::kUsage, "sweep: missing argument; `lockstep sweep --help` says more");
  const bool one = !a.text("array").empty();
  SweepSpec spec;
  spec.file = a.positional[0];
  spec.ranks = a.ranks(1);
  spec.grid = SweepGrid::parse(a.rest(), choices_of_keys(app));
  const int64_t point = one ? a.integer("array", 0, spec.grid.points() - 1) : 0;
  const int64_t jobs = a.integer("jobs", 0, 4096);

  const SweepPoints checked = check_points(app, spec);
  const std::vector<DataOptions>& data = checked.data;
  spec.configuration = checked.configuration;
  const auto settings = load_settings(app, ConfigTree::load(spec.file, spec.grid.overrides(0)), spec.ranks);
  const std::string dir = a.text("dir").empty() ? settings->run.dir + "-sweep" : a.text("dir");
  const Share share = share_of(*settings, one ? 1 : jobs, spec.ranks);
  if (a.has("dry-run")) {
    print_plan(spec, dir, a.has("json"), share.threads);
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
  const int code = Sweep(record, share, data, a.integer("time", 0)).run(points);
  if (!one && code != static_cast<int>(ExitCode::kSaved)) print_results(record, a.has("json"));
  return code;
}

}  // namespace lockstep
