#include "data/samples/sampler.h"

#include <cmath>
#include <utility>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/trace.h"

namespace lockstep {
namespace {

constexpr uint64_t kOrder = 0x6f72646572;  // separates its keys from those of other purposes
constexpr int kRounds = 6;                 // even, so that the halves end in their original positions

uint64_t key_of(uint64_t purpose, uint64_t seed, int64_t epoch) {
  uint64_t words[] = {seed, static_cast<uint64_t>(epoch)};
  return hash64(words, sizeof words, purpose);
}

}  // namespace

int64_t random_below(int64_t n, uint64_t purpose, uint64_t seed, int64_t epoch) {
  check(n > 0, "random_below(", n, ")");
  return static_cast<int64_t>(key_of(purpose, seed, epoch) % static_cast<uint64_t>(n));
}

Sampler::Sampler(int64_t n, uint64_t seed, int64_t epoch, bool shuffle)
    : n_(static_cast<uint64_t>(n)), key_(key_of(kOrder, seed, epoch)), shuffle_(shuffle) {
  check(n > 0, "a sampler needs samples, not ", n);
  a_ = static_cast<uint64_t>(std::sqrt(static_cast<double>(n)));
  while (a_ * a_ < n_) ++a_;  // corrects a square root that was rounded down; any a >= 1 gives a permutation
  b_ = (n_ + a_ - 1) / a_;
}

uint64_t Sampler::permute(uint64_t value) const {
  uint64_t left = value % a_, right = value / a_;
  for (int round = 0; round < kRounds; ++round) {
    uint64_t words[] = {key_, right};
    uint64_t sum = left + hash64(words, sizeof words, static_cast<uint64_t>(round)) % n_;
    left = std::exchange(right, sum % (round % 2 == 0 ? a_ : b_));
  }
  return right * a_ + left;
}

int64_t Sampler::operator()(int64_t position) const {
  trace_mark();
  check(position >= 0 && static_cast<uint64_t>(position) < n_, "position ", position, " of ", n_, " samples");
  if (!shuffle_) return position;
  uint64_t value = static_cast<uint64_t>(position);
  do value = permute(value);
  while (value >= n_);
  return static_cast<int64_t>(value);
}

}  // namespace lockstep
