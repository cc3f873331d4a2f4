#include "launch/cluster/step_times.h"

#include <algorithm>
#include <set>

#include "core/base/log.h"
#include "core/base/median.h"
#include "core/base/text_table.h"

namespace lockstep {
namespace {

constexpr int64_t kWarmUp = 3;  // steps
constexpr int kInRow = 4;
constexpr double kRepeat_s = 60;
// A straggler computes so many times as long as most, costs so much of a step and so many milliseconds.
constexpr double kRatio = 1.5, kShare = 0.1, kLeast_ms = 10;
// Exchanges are named where even the rank that waits least waits this part of a step.
constexpr double kWaiting = 0.5;

}  // namespace

std::optional<std::string> StepTimes::update(const std::vector<RankView>& ranks, double now) {
  ranks_.resize(ranks.size());
  bool moved = false;
  for (size_t i = 0; i < ranks.size(); ++i) {
    const FlightStep& s = ranks[i].step;
    Rank& r = ranks_[i];
    if (s.step <= r.step) continue;
    moved = true;
    r.step = s.step;
    const double kept = ++r.steps <= kWarmUp ? 0 : 0.6;
    r.step_ms = kept * r.step_ms + (1 - kept) * s.step_ms;
    r.busy_ms = kept * r.busy_ms + (1 - kept) * std::max(0.0, s.step_ms - s.waited_ms);
    r.slow_mb_s.resize(ranks.size());
    if (s.slow_from < 0 || s.slow_from >= static_cast<int64_t>(ranks.size())) continue;
    double& link = r.slow_mb_s[static_cast<size_t>(s.slow_from)];
    link = link > 0 ? kept * link + (1 - kept) * s.slow_mb_s : s.slow_mb_s;
  }
  const bool warm = std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& r) { return r.steps > kWarmUp; });
  if (!moved || !warm || ranks.size() < 2) return {};
  auto line = on_straggler(ranks);
  if (!line) line = on_exchanges(ranks);
  if (!line || now - said_ < kRepeat_s) return {};
  said_ = now;
  return line;
}

std::optional<std::string> StepTimes::on_straggler(const std::vector<RankView>& ranks) {
  const auto worst = std::max_element(ranks_.begin(), ranks_.end(),
                                      [](const Rank& a, const Rank& b) { return a.busy_ms < b.busy_ms; });
  const auto index = static_cast<int>(worst - ranks_.begin());
  std::vector<double> others;
  for (const Rank& r : ranks_)
    if (&r != &*worst) others.push_back(r.busy_ms);
  const double typical = median(std::move(others)), lost = worst->busy_ms - typical;
  if (worst->busy_ms < kRatio * typical || lost < kLeast_ms || lost < kShare * worst->step_ms) {
    slowest_ = -1;
    return {};
  }
  if (slowest_ != index) slowest_ = index, in_row_ = 0;
  if (++in_row_ < kInRow) return {};
  return str(place_of(ranks[static_cast<size_t>(index)]), " is slow: it computes ",
             fixed(worst->busy_ms / std::max(typical, 1e-3), 1), " times as long as the others in a step (",
             static_cast<int64_t>(worst->busy_ms), " ms, they ", static_cast<int64_t>(typical), " ms, of ",
             static_cast<int64_t>(worst->step_ms),
             "), and all wait for it; look at what else runs on its machine, its clock and its temperature");
}

// "; the slowest is from rank 0 on n1 to rank 2 on n3, 2 MB/s", or nothing.
std::string StepTimes::slowest_link(const std::vector<RankView>& ranks) const {
  double least = 0;
  size_t from = 0, to = 0;
  for (size_t r = 0; r < ranks_.size(); ++r)
    for (size_t f = 0; f < ranks_[r].slow_mb_s.size(); ++f) {
      const double mb_s = ranks_[r].slow_mb_s[f];
      if (mb_s <= 0 || ranks[r].host == ranks[f].host) continue;
      if (least == 0 || mb_s < least) least = mb_s, from = f, to = r;
    }
  if (least == 0) return {};
  return str("; the slowest is from rank ", ranks[from].rank, " on ", ranks[from].host, " to rank ", ranks[to].rank,
             " on ", ranks[to].host, ", ", fixed(least, least < 10 ? 1 : 0), " MB/s");
}

std::optional<std::string> StepTimes::on_exchanges(const std::vector<RankView>& ranks) {
  std::set<std::string> machines;
  for (const RankView& r : ranks) machines.insert(r.host);
  std::vector<double> steps;
  double busiest = 0;
  for (const Rank& r : ranks_) {
    steps.push_back(r.step_ms);
    busiest = std::max(busiest, r.busy_ms);
  }
  const double step = median(std::move(steps));
  if (machines.size() < 2 || step - busiest < kWaiting * step || step - busiest < kLeast_ms) {
    waits_ = 0;
    return {};
  }
  if (++waits_ < kInRow) return {};
  return str("exchanges between the machines take ", static_cast<int64_t>(step - busiest), " of the ",
             static_cast<int64_t>(step), " ms of a step, in which no rank computes longer than ",
             static_cast<int64_t>(busiest), " ms", slowest_link(ranks),
             ": the links are slow for this model; `lockstep launch ... -- doctor` measures each of them, and "
             "precision.reduce: bf16 or more samples a step need less of them");
}

}  // namespace lockstep
