#include "core/decode/sampling.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/philox.h"

namespace lockstep {
namespace {

using Ranked = std::vector<std::pair<float, int32_t>>;  // logit and token, likeliest first

// Only as many as may be chosen are returned.
Ranked rank_tokens(std::span<const float> logits, std::span<const int32_t> text, const Sampling& o) {
  Ranked out(logits.size());
  for (size_t i = 0; i < out.size(); ++i) out[i] = {logits[i], static_cast<int32_t>(i)};
  if (o.repetition_penalty != 1) {
    const std::set<int32_t> once(text.begin(), text.end());
    const auto penalty = static_cast<float>(o.repetition_penalty);
    for (const int32_t token : once) {
      float& logit = out[static_cast<size_t>(token)].first;
      logit = logit > 0 ? logit / penalty : logit * penalty;
    }
  }
  const auto all = static_cast<int64_t>(out.size());
  const int64_t wanted = o.temperature <= 0 ? 1 : o.top_k > 0 ? std::min(o.top_k, all) : all;
  std::partial_sort(out.begin(), out.begin() + wanted, out.end(),
                    [](auto& a, auto& b) { return a.first != b.first ? a.first > b.first : a.second < b.second; });
  out.resize(static_cast<size_t>(wanted));
  return out;
}

// `uniform` lies in [0, 1).
int32_t choose(const Ranked& ranked, const Sampling& o, double uniform) {
  if (ranked.size() == 1) return ranked[0].second;
  std::vector<double> weights;
  double total = 0;
  for (const auto& [logit, token] : ranked)
    total += weights.emplace_back(std::exp((logit - ranked[0].first) / o.temperature));
  if (o.top_p < 1) {
    double kept = 0;
    size_t n = 0;
    while (n < weights.size() && kept < o.top_p * total) kept += weights[n++];
    weights.resize(std::max<size_t>(n, 1)), total = kept;
  }
  if (o.min_p > 0) {
    while (weights.back() < o.min_p * weights[0]) total -= weights.back(), weights.pop_back();
  }
  double left = uniform * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    left -= weights[i];
    if (left < 0) return ranked[i].second;
  }
  return ranked[weights.size() - 1].second;
}

}  // namespace

void require_valid(const Sampling& s) {
  const auto require_range = [](const char* name, auto value, bool holds, const char* range) {
    require(holds, ExitCode::kUsage, "sampling: ", name, " ", value, ": must be ", range);
  };
  require_range("temperature", s.temperature, s.temperature >= 0, "0 or more");
  require_range("top_k", s.top_k, s.top_k >= 0, "0 or more");
  require_range("top_p", s.top_p, s.top_p >= 0 && s.top_p <= 1, "in [0, 1]");
  require_range("min_p", s.min_p, s.min_p >= 0 && s.min_p <= 1, "in [0, 1]");
  require_range("repetition_penalty", s.repetition_penalty,
                s.repetition_penalty > 0 && std::isfinite(s.repetition_penalty), "a finite number above 0");
}

int32_t choose_token(std::span<const float> logits, std::span<const int32_t> text, const Sampling& sampling,
                     int64_t added) {
  constexpr uint64_t kPurpose = 0x67656e;  // keeps these random numbers apart from others of the seed
  const double uniform = uniform_of(philox(sampling.seed, static_cast<uint64_t>(added), kPurpose).v[0]);
  return choose(rank_tokens(logits, text, sampling), sampling, uniform);
}

}  // namespace lockstep
