#include "launch/checkpoints/planned_saves.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace lockstep {
namespace {

// Multiples of `of` in (after, until].
int64_t multiples(int64_t of, int64_t after, int64_t until) {
  return of > 0 && until > after ? until / of - after / of : 0;
}

// Those of both; where the least common multiple is out of reach, none.
int64_t multiples_of_both(int64_t a, int64_t b, int64_t after, int64_t until) {
  int64_t both = 0;
  if (a <= 0 || b <= 0 || __builtin_mul_overflow(a / std::gcd(a, b), b, &both)) return 0;
  return multiples(both, after, until);
}

}  // namespace

int64_t most_added_checkpoints(const PlannedSaves& planned, std::vector<int64_t> there, const Retention& retention) {
  const auto& [done, last, every, any, best_every] = planned;
  if (last <= done) return last == 0 && done == 0 ? 1 : 0;  // the initial parameters
  const int64_t before_last = multiples(every, done, last - 1), now = static_cast<int64_t>(there.size());
  if (retention.keep_last <= 0) return before_last + 1;
  // The state before the last save: the `newest` are kept as recent ones, older ones only if multiples of keep_every.
  const int64_t keep = retention.keep_every;
  const int64_t perhaps = multiples(best_every, done, last - 1) - multiples_of_both(every, best_every, done, last - 1);
  const int64_t possible = any ? last - 1 - done : before_last + perhaps;
  const int64_t new_ones = std::min(possible, retention.keep_last);
  const bool known = !any && perhaps == 0 && before_last > 0;  // which are the newest
  const int64_t newest_from = known ? ((last - 1) / every - new_ones + 1) * every : last;
  int64_t stay = new_ones;
  if (keep > 0 && possible > new_ones)
    stay += multiples_of_both(every, keep, done, newest_from - 1) +
            multiples_of_both(best_every, keep, done, newest_from - 1);
  std::sort(there.begin(), there.end(), std::greater<>());
  int64_t as_new = retention.keep_last - new_ones;
  for (int64_t step : there) stay += as_new-- > 0 || (keep > 0 && step % keep == 0);
  stay = std::min(stay, now + possible - retention.keep_best) + retention.keep_best;  // all of which may be other ones
  // At the first save there may be more old checkpoints than are kept afterwards.
  return std::max<int64_t>(1, stay + 1 - now);
}

}  // namespace lockstep
