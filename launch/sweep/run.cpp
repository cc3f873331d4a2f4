#include "launch/sweep/run.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <sstream>

#include "comm/mpi/mpi_comm.h"
#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/text_table.h"
#include "core/device/backend.h"
#include "core/device/thread_pool.h"
#include "core/io/files.h"
#include "data/streams/data_identity.h"
#include "launch/process/child_process.h"

namespace lockstep {
namespace {

using Words = std::vector<std::string>;

constexpr double kMoment_s = 0.1;  // until points that wait for another process's end are looked at again

double seconds_of_run(std::chrono::steady_clock::time_point t) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - t).count();
}

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

}  // namespace

SweepShare share_of(const Settings& s, int64_t asked_jobs, int ranks) {
  SweepShare out;
  const int64_t cores = available_cores(), threads = s.compute.threads;
  out.gpus = visible_gpus(s);
  const auto gpus = static_cast<int64_t>(out.gpus.size());
  const int64_t fit = gpus > 0 ? gpus / ranks : threads > 0 ? cores / (ranks * threads) : 1;
  out.jobs = static_cast<int>(asked_jobs > 0 ? asked_jobs : std::max<int64_t>(1, fit));
  if (out.jobs * ranks > gpus) out.gpus.clear();
  if (threads == 0 && out.jobs > 1) out.threads = std::max<int64_t>(1, cores / (out.jobs * ranks));
  return out;
}

Words command_of(const SweepSpec& spec, const std::string& dir, int64_t point, int64_t threads, int64_t until) {
  Words words{program_path()};
  const bool processes = spec.ranks > 1 && mpi_built();
  if (processes) words.insert(words.end(), {"launch", "-n", str(spec.ranks), "--"});
  words.insert(words.end(), {"train", spec.file});
  for (const std::string& o : spec.overrides(point)) words.push_back(o);
  words.push_back(str("run.dir=", dir));
  if (threads > 0) words.push_back(str("compute.threads=", threads));
  if (spec.ranks > 1 && !processes) words.insert(words.end(), {"--ranks", str(spec.ranks)});
  words.push_back("--resume");
  if (until > 0) words.insert(words.end(), {"--until", str(until)});
  return words;
}

SweepRun::SweepRun(SweepRecord& record, SweepShare share, const std::vector<DataOptions>& data, int64_t seconds)
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

SweepRun::~SweepRun() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int SweepRun::run(const std::vector<int64_t>& points) {
  train(points);
  return code();
}

int SweepRun::halve(const std::vector<Rung>& rungs) {
  std::vector<int64_t> alive;
  for (int64_t p = 0; p < rungs[0].points; ++p) alive.push_back(p);
  for (size_t i = 0; i < rungs.size(); ++i) {
    rung_ = rungs[i].steps;
    last_rung_ = i + 1 == rungs.size();
    log_info(str("rung ", i + 1, " of ", rungs.size(), ": ", alive.size(), alive.size() == 1 ? " point" : " points",
                 " to step ", rung_));
    if (!train(alive) || last_rung_) break;
    std::vector<std::pair<int64_t, std::optional<double>>> values;
    for (int64_t p : alive) {
      const auto end = record_.end_of(p);
      if (!has_ended(p)) continue;
      for (const RungEnd& r : end->rungs)
        if (r.steps == rung_) values.emplace_back(p, r.value);
    }
    alive = best_points(std::move(values), rungs[i + 1].points, record_.spec().ranking.highest);
  }
  return code();
}

int SweepRun::code() const {
  if (interrupted_) {
    log_info("stopped on request; repeat the same command to go on");
    return static_cast<int>(ExitCode::kSaved);
  }
  return failures_.empty() ? 0 : failures_.begin()->second;
}

// In this rung, or at all.
bool SweepRun::has_ended(int64_t point) const {
  const auto end = record_.end_of(point);
  return end && end->code == 0 && (rung_ == 0 || end->reached(rung_));
}

// Returns false where points are left because this process was asked to stop.
bool SweepRun::train(const std::vector<int64_t>& points) {
  std::deque<int64_t> waiting;
  for (int64_t p : points)
    if (!has_ended(p)) waiting.push_back(p);
  total_ = static_cast<int64_t>(points.size());
  done_ = total_ - static_cast<int64_t>(waiting.size());
  if (done_ > 0) log_info(str(done_, " of ", total_, total_ == 1 ? " point has" : " points have", " finished before"));
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
  interrupted_ = interrupted_ || (stopping_ && (!waiting.empty() || !last_rung_));
  return !interrupted_;
}

std::string SweepRun::named(int64_t point) const {
  return str("point ", SweepRecord::name(point), " (", record_.spec().grid.text(point), ")");
}

// By a process that still saves, as those of a sweep that was killed do; it is named.
bool SweepRun::is_held(int64_t point) {
  const std::string owner = RunDir::holder(record_.point_dir(point));
  if (!owner.empty() && told_.insert(point).second)
    log_info(str(named(point), ": ", owner, " still works in ", record_.point_dir(point),
                 "; waiting for it to end (it may belong to an earlier sweep, and be saving)"));
  return !owner.empty();
}

void SweepRun::start(int64_t point) {
  make_folder(record_.point_dir(point));
  try {
    record_.require_same_data(file_identities(data_[static_cast<size_t>(point)]));
  } catch (const Error& e) {
    PointEnd end = record_.end_of(point).value_or(PointEnd());
    end.code = static_cast<int>(e.code());
    record_.write_end(point, end);
    failures_[point] = end.code;
    return log_warning(str(named(point), ": not started: ", e.what(), "; ", ++done_, " of ", total_));
  }
  const Descriptor log = open_to_append(record_.log(point));
  if (!log) fail_write(record_.log(point), errno);
  const Words words =
      command_of(record_.spec(), record_.point_dir(point), point, share_.threads, last_rung_ ? 0 : rung_);
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
void SweepRun::wait_for_news(bool held) {
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

// A rung that is not the last ends with kSaved, as steps are left.
bool SweepRun::succeeded(int code, const PointResult& result) const {
  return code == 0 || (!last_rung_ && code == static_cast<int>(ExitCode::kSaved) && result.steps >= rung_);
}

void SweepRun::ended(pid_t child, int status) {
  const Running r = running_[child];
  running_.erase(child);
  free_slots_.push_back(r.slot);
  const bool killed = WIFSIGNALED(status);
  const int code = killed ? static_cast<int>(ExitCode::kRankLost) : WEXITSTATUS(status);
  // Before its first step a process that is asked to stop may end by the signal itself.
  const bool stopped =
      code == static_cast<int>(ExitCode::kSaved) || (stopping_ && killed && WTERMSIG(status) == SIGTERM);
  const PointResult result = record_.result(r.point, rung_ > 0 ? rung_ : -1);
  const bool good = succeeded(code, result);
  PointEnd end = result.end.value_or(PointEnd());
  end.code = good ? 0 : stopped ? static_cast<int>(ExitCode::kSaved) : code;
  end.seconds += seconds_of_run(r.since);
  if (good && rung_ > 0 && !end.reached(rung_)) end.rungs.push_back({rung_, record_.value(result)});
  record_.write_end(r.point, end);
  if (good) return say_result(r.point, result);
  if (stopped && stopping_) {
    interrupted_ = true;
    return log_info(str(named(r.point), ": stopped"));
  }
  failures_[r.point] = end.code;
  log_warning(str(named(r.point), killed ? str(": killed by signal ", WTERMSIG(status)) : str(": exit code ", end.code),
                  ", see ", record_.log(r.point), "; ", ++done_, " of ", total_));
}

void SweepRun::say_result(int64_t point, const PointResult& result) {
  const SweepRanking& by = record_.spec().ranking;
  const auto value = record_.value(result);
  log_info(str(named(point), ": ", by.by_best ? "best " : "", result.validation ? "validation " : "", by.metric, " ",
               value ? fixed(*value, 4) : "unknown", ", step ", result.steps, "; ", ++done_, " of ", total_));
}

}  // namespace lockstep
