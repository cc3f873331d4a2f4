#include "sharding/bucket_size.h"

#include <algorithm>
#include <cmath>

namespace lockstep {

void BucketSizeAdvice::add(const std::vector<Transfer>& transfers, double step_s) {
  ++steps_;
  step_s_ += step_s;
  double channel_free = 0;  // reductions follow each other on one channel
  for (const Transfer& t : transfers) {
    const bool reduce = t.kind == Transfer::Kind::kReduce;
    Seen& g = buckets_[(reduce ? "reduce " : "gather ") + t.bucket];
    const double waited = std::max(0.0, t.ready_s - t.needed_s);
    g.bytes = static_cast<double>(t.bytes);
    g.waited_s += waited;
    ++g.count;
    waited_s_ += waited;
    if (!reduce) continue;
    if (waited > 20e-6) {  // otherwise it had ended before the host waited, and its time is not known
      g.took_s += std::max(0.0, t.ready_s - std::max(t.started_s, channel_free));
      ++g.ended_in_sight;
    }
    channel_free = std::max(channel_free, t.ready_s);
  }
}

std::map<std::string, double> BucketSizeAdvice::waits() const {
  std::map<std::string, double> out;
  for (auto& [name, g] : buckets_) out[name] = g.waited_s / static_cast<double>(std::max<int64_t>(1, steps_));
  return out;
}

std::optional<double> BucketSizeAdvice::better(double bucket_mb) const {
  if (waiting() < 0.05) return {};
  double n = 0, x = 0, y = 0, xx = 0, xy = 0, total = 0;
  for (auto& [name, g] : buckets_) {
    if (name.rfind("reduce ", 0) != 0) continue;
    total += g.bytes;
    if (g.ended_in_sight < 3) continue;
    const double took = g.took_s / static_cast<double>(g.ended_in_sight);
    n += 1, x += g.bytes, y += took, xx += g.bytes * g.bytes, xy += g.bytes * took;
  }
  const double spread = n * xx - x * x;
  if (n < 2 || spread <= 0) return {};  // one size says nothing of another
  const double per_byte = (n * xy - x * y) / spread, per_call = (y - per_byte * x) / n;
  if (per_byte <= 0 || per_call <= 0) return {};
  const double mb = std::clamp(std::sqrt(total * per_call / per_byte) / 1e6, 0.05, std::max(0.05, total / 1e6));
  if (mb > bucket_mb / 2 && mb < bucket_mb * 2) return {};
  return mb;
}

}  // namespace lockstep
