#include "launch/report/findings.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/median.h"
#include "core/base/text_table.h"
#include "launch/records/jumps.h"

namespace lockstep {
namespace {

using Points = std::vector<Curve::Point>;

constexpr size_t kEnough = 8;  // points: of fewer, nothing stands out

double median_of(const Points& points, size_t begin, size_t end) {
  std::vector<double> values;
  for (size_t i = begin; i < end; ++i)
    if (std::isfinite(points[i].value)) values.push_back(points[i].value);
  return median(values);
}

// Memory in use after a step is the same after each, but for the first ones. It grows where each of four quarters of
// the run holds more than the one before.
void find_growth(const std::string& name, const Points& p, std::vector<std::string>& out) {
  constexpr double kLeast = 1, kPart = 0.02;  // MB, and of what there is, over the last three quarters
  if (p.size() < 2 * kEnough) return;
  double quarters[4];
  for (size_t q = 0; q < 4; ++q) quarters[q] = median_of(p, q * p.size() / 4, (q + 1) * p.size() / 4);
  const double grown = quarters[3] - quarters[1];
  if (!std::is_sorted(quarters, quarters + 4) || grown < std::max(kLeast, kPart * quarters[1]) ||
      quarters[2] - quarters[1] < 0.2 * grown || quarters[3] - quarters[2] < 0.2 * grown)
    return;
  const double steps = static_cast<double>(p.back().step - p.front().step);
  out.push_back(str(name, " grows all the time, from ", fixed(quarters[0], 1), " to ", fixed(quarters[3], 1),
                    " MB, about ", short_number((p.back().value - p[p.size() / 4].value) / (0.75 * steps) * 1e3),
                    " kB a step: something keeps memory of each step (a tensor that holds its graph, for one)"));
}

// The largest jump, and how many there are.
void find_jump(const std::string& name, const Points& p, const JumpRule& rule, std::vector<std::string>& out) {
  Jumps all(rule.times, kEnough);
  int64_t jumps = 0;
  Curve::Point worst;
  double before_worst = 0;
  for (const Curve::Point& point : p) {
    const auto before = all.take(point.value);
    if (!before || (++jumps > 1 && point.value / *before <= worst.value / before_worst)) continue;
    worst = point;
    before_worst = *before;
  }
  if (jumps == 0) return;
  out.push_back(str(name, " jumps to ", short_number(worst.value), " after step ", worst.step, ", where it was ",
                    short_number(before_worst), jumps > 1 ? str("; ", jumps, " such points in all") : "", ": ",
                    rule.advice));
}

void find_dead(const std::string& name, const Points& p, std::vector<std::string>& out) {
  constexpr double kDead = 0.999;
  if (p.empty() || !(median_of(p, p.size() - std::min<size_t>(p.size(), 5), p.size()) >= kDead)) return;
  const auto alive = std::find_if(p.rbegin(), p.rend(), [](auto& at) { return at.value < kDead; });
  out.push_back(str(name, ": nothing but zeros ",
                    alive == p.rend() ? str("from step ", p.front().step) : str("after step ", alive->step),
                    ": these units are dead"));
}

}  // namespace

std::vector<std::string> findings(const NamedCurves& curves) {
  std::vector<std::string> out;
  for (const auto& [name, curve] : curves) {
    const Points p = curve->points();
    const auto bad = std::find_if(p.begin(), p.end(), [](auto& at) { return !std::isfinite(at.value); });
    if (bad != p.end() && (name.starts_with("loss") || name.starts_with("val_loss") || name.starts_with("grad_norm")))
      out.push_back(str(name, " is not finite after step ", bad->step));
    if (name == "memory_mb") find_growth(name, p, out);
    if (name == "loss" || name.starts_with("loss/")) find_jump(name, p, kLossJumps, out);
    if (name.starts_with("grad_norm")) find_jump(name, p, kNormJumps, out);
    if (name.ends_with("/zeros")) find_dead(name, p, out);
  }
  return out;
}

}  // namespace lockstep
