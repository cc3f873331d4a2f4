#include "core/decode/log_probs.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"

namespace lockstep {

double log_sum_exp(std::span<const float> logits) {
  check(!logits.empty(), "log_sum_exp of no logits");
  const float most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - most);
  return std::log(sum) + most;
}

LogProbs log_probs_of(std::span<const float> logits, int64_t tokens, int32_t chosen, int64_t most) {
  const double normaliser = log_sum_exp(logits);
  const auto of = [&](int32_t token) {
    return TokenLogProb{token, static_cast<double>(logits[static_cast<size_t>(token)]) - normaliser};
  };
  LogProbs out{of(chosen), {}};
  if (most <= 0) return out;
  std::vector<int32_t> ids(static_cast<size_t>(tokens));
  std::iota(ids.begin(), ids.end(), 0);
  const auto end = ids.begin() + std::min(most, tokens);
  std::partial_sort(ids.begin(), end, ids.end(), [&](int32_t a, int32_t b) {
    const float x = logits[static_cast<size_t>(a)], y = logits[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (auto id = ids.begin(); id != end; ++id) out.likeliest.push_back(of(*id));
  return out;
}

}  // namespace lockstep
