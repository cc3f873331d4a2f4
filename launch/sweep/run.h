// SweepRun: runs the points of a sweep, several at a time. Each is a process in a process group of its own, which gets
// SIGTERM when this process is asked to stop or ends. Owned by the command; borrows the record.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <csignal>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "launch/config/settings.h"
#include "launch/sweep/record.h"

namespace lockstep {

// How many points run at a time, and what each may use.
struct SweepShare {
  int jobs = 1;
  int64_t threads = 0;  // compute threads of a rank, where the configuration leaves them open; 0: do not say
  std::vector<std::string> gpus = {};  // as CUDA_VISIBLE_DEVICES names them; empty: not shared out
};
// `jobs`: asked for; 0: as many as the cores, or the GPUs, are enough for.
SweepShare share_of(const Settings& settings, int64_t jobs, int ranks);

// The command that starts a point in `dir`, or resumes it. `until`: the step after which it ends; 0: it trains all
// steps.
std::vector<std::string> command_of(const SweepSpec& spec, const std::string& dir, int64_t point, int64_t threads,
                                    int64_t until = 0);

class SweepRun {
 public:
  // `data`: that of each point of the grid. `seconds`: after which all save and end; 0: no limit.
  SweepRun(SweepRecord& record, SweepShare share, const std::vector<DataOptions>& data, int64_t seconds);
  ~SweepRun();
  SweepRun(const SweepRun&) = delete;
  SweepRun& operator=(const SweepRun&) = delete;

  // Trains the points that have not ended with 0. Returns the exit code: 0, that of the first point that failed, or
  // kSaved where this process was asked to stop before all had ended.
  int run(const std::vector<int64_t>& points);
  // All points of the grid by successive halving: each rung's points train to its steps, and the best go on.
  int halve(const std::vector<Rung>& rungs);

 private:
  using Clock = std::chrono::steady_clock;
  struct Running {
    int64_t point = 0;
    int slot = 0;
    Clock::time_point since;
  };

  std::string named(int64_t point) const;
  bool has_ended(int64_t point) const;
  bool is_held(int64_t point);
  bool train(const std::vector<int64_t>& points);
  int code() const;
  void start(int64_t point);
  void wait_for_news(bool held);
  void ended(pid_t child, int status);
  bool succeeded(int code, const PointResult& result) const;
  void say_result(int64_t point, const PointResult& result);

  SweepRecord& record_;
  const SweepShare share_;
  const std::vector<DataOptions>& data_;
  const int64_t seconds_;
  const Clock::time_point begun_ = Clock::now();
  sigset_t awaited_ = {}, before_ = {};
  std::vector<int> free_slots_;
  std::map<pid_t, Running> running_;
  std::map<int64_t, int> failures_;  // exit codes by point
  std::set<int64_t> told_;           // held points that were named
  int64_t total_ = 0, done_ = 0;
  int64_t rung_ = 0;  // the steps that points train to now, with halving; 0: all that they have
  bool last_rung_ = true;
  bool stopping_ = false, interrupted_ = false;
};

}  // namespace lockstep
