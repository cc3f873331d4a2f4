#include "launch/sweep/halving.h"

#include <algorithm>

namespace lockstep {

bool is_better(const std::optional<double>& a, const std::optional<double>& b, bool highest) {
  if (!a || !b) return a.has_value() && !b.has_value();
  return highest ? *a > *b : *a < *b;
}

std::vector<Rung> rungs_of(const Halving& h, int64_t points) {
  std::vector<Rung> out;
  int64_t steps = h.first;
  for (; steps < h.steps && points > 1; points = std::max<int64_t>(1, points / h.eta)) {
    out.push_back({steps, points});
    steps = steps > h.steps / h.eta ? h.steps : steps * h.eta;
  }
  out.push_back({h.steps, points});
  return out;
}

int64_t steps_of_rungs(const std::vector<Rung>& rungs) {
  int64_t all = 0, before = 0;
  for (const Rung& r : rungs) {
    all += r.points * (r.steps - before);
    before = r.steps;
  }
  return all;
}

std::vector<int64_t> best_points(std::vector<std::pair<int64_t, std::optional<double>>> points, int64_t count,
                                 bool highest) {
  std::sort(points.begin(), points.end());
  std::stable_sort(points.begin(), points.end(),
                   [&](const auto& a, const auto& b) { return is_better(a.second, b.second, highest); });
  std::vector<int64_t> out;
  for (const auto& [point, _] : points)
    if (static_cast<int64_t>(out.size()) < count) out.push_back(point);
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace lockstep
