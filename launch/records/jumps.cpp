#include "launch/records/jumps.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/base/median.h"

namespace lockstep {

std::optional<double> Jumps::take(double value) {
  constexpr size_t kBefore = 32;
  constexpr double kShare = 0.05;
  if (!std::isfinite(value)) return std::nullopt;
  std::optional<double> found;
  if (before_.size() >= enough_) {
    const double usual = median(std::vector<double>(before_.begin(), before_.end()));
    largest_ = std::max(largest_, usual);
    if (usual > 0 && value >= times_ * usual && value >= kShare * largest_) found = usual;
  }
  before_.push_back(value);
  if (before_.size() > kBefore) before_.pop_front();
  return found;
}

}  // namespace lockstep
