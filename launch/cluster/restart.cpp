#include "launch/cluster/restart.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

RestartPolicy::Decision RestartPolicy::decide(ExitCode code, int64_t last_step, int64_t equal_step) {
  constexpr int kSameStep = 3;  // attempts that end at the same step
  constexpr double kLongest = 30;
  Decision d;
  if (left_ <= 0) return d;
  const bool differs = code == ExitCode::kRanksDisagree;
  if (code != ExitCode::kRankLost && code != ExitCode::kInternal && !(differs && equal_step >= 0)) {
    d.why_not = str("exit code ", static_cast<int>(code), " would come again: not restarted");
    return d;
  }
  without_progress_ = last_step > last_step_ ? 1 : without_progress_ + 1;
  last_step_ = std::max(last_step_, last_step);
  if (without_progress_ >= kSameStep) {
    d.why_not =
        str(without_progress_, " attempts in a row ended at or before step ", last_step_, ": not restarted again");
    return d;
  }
  --left_;
  d.again = true;
  d.pause_s = without_progress_ <= 1 ? 0.2 : std::min(kLongest, std::pow(2.0, without_progress_ - 1));
  return d;
}

std::vector<Host> without(const std::vector<Host>& hosts, const std::set<std::string>& lost) {
  std::vector<Host> out;
  for (const Host& h : hosts)
    if (!lost.count(h.name)) out.push_back(h);
  return out;
}

}  // namespace lockstep
