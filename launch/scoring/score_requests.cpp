#include "launch/scoring/score_requests.h"

#include <algorithm>
#include <numeric>

#include "core/decode/log_probs.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kBuckets = 32;  // lengths that samples are padded to

}  // namespace

std::string encoded_scores(const Tensor& output, const Batch& batch) {
  const Tensor logits = raw::to_host(raw::cast(output, DType::kFloat32)), labels = raw::to_host(batch[kLabels]);
  const int64_t rows = logits.dim(0), time = logits.dim(1), width = logits.dim(2);
  std::vector<TokensScore> scores;
  for (int64_t r = 0; r < rows; ++r) {
    TokensScore score{0, true};
    for (int64_t t = 0; t < time; ++t) {
      const int32_t label = labels.values<int32_t>()[r * time + t];
      if (label == kIgnoreIndex) continue;
      const float* row = logits.values<float>() + (r * time + t) * width;
      score.log_probability += static_cast<double>(row[label]) - log_sum_exp({row, static_cast<size_t>(width)});
      score.greedy = score.greedy && std::max_element(row, row + width) - row == label;
    }
    scores.push_back(score);
  }
  return {reinterpret_cast<const char*>(scores.data()), scores.size() * sizeof scores[0]};
}

ScoreRequests::ScoreRequests(std::vector<ScoreRequest> requests, int64_t context, int64_t classes)
    : requests_(std::move(requests)), order_(requests_.size()) {
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(),
                   [&](size_t a, size_t b) { return requests_[a].tokens.size() < requests_[b].tokens.size(); });
  int64_t longest = 2;
  std::string all;
  for (const ScoreRequest& r : requests_) {
    const auto size = static_cast<int64_t>(r.tokens.size());
    check(size >= 2 && size <= context + 1 && r.first >= 1 && r.first < size, "a request of ", size, " tokens from ",
          r.first, " on, for a context of ", context);
    longest = std::max(longest, size);
    all.append(reinterpret_cast<const char*>(r.tokens.data()), r.tokens.size() * sizeof(int32_t));
    all += str(" ", r.first, "\n");
  }
  identity_ = hash128(all);
  const int64_t width = longest - 1;
  spec_.tensors = {{"tokens", DType::kInt32, {width}}, {std::string(kLabels), DType::kInt32, {width}}};
  spec_.classes = classes;
  spec_.unit = "tokens";
  spec_.units = width;
  spec_.next_tokens = true;
  spec_.length_buckets = std::min(width, kBuckets);
}

int64_t ScoreRequests::length(int64_t, int64_t index) const {
  return static_cast<int64_t>(requests_[order_[static_cast<size_t>(index)]].tokens.size()) - 1;
}

void ScoreRequests::read(int64_t, int64_t index, SampleMemory sample) const {
  const ScoreRequest& r = requests_[order_[static_cast<size_t>(index)]];
  auto *ids = static_cast<int32_t*>(sample[0]), *labels = static_cast<int32_t*>(sample[1]);
  const int64_t inputs = static_cast<int64_t>(r.tokens.size()) - 1;
  for (int64_t t = 0; t < spec_.units; ++t) {
    ids[t] = t < inputs ? r.tokens[static_cast<size_t>(t)] : 0;
    labels[t] = t < inputs && t + 1 >= r.first ? r.tokens[static_cast<size_t>(t) + 1] : kIgnoreIndex;
  }
}

}  // namespace lockstep
