// ScoreRequests: tokens that a model of the next token is to say how likely it finds, as samples; and what it says of
// each. Plain values and functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor/batch.h"
#include "data/samples/dataset.h"

namespace lockstep {

struct ScoreRequest {
  std::vector<int32_t> tokens;
  int64_t first = 1;  // of those that are scored, which end with the last; what is before them is given
};

struct TokensScore {
  double log_probability = 0;  // natural, of all scored tokens behind what is before them
  bool greedy = false;         // each of them is the most likely one, and the first of those
};

// Requests as samples, the shortest first: in the order in which an evaluation takes samples that it puts together by
// length (SampleOrder), so that predictions come in that order, too. Of model inputs of at most `context` tokens: a
// request has at least two tokens, at most context + 1.
class ScoreRequests final : public Dataset {
 public:
  ScoreRequests(std::vector<ScoreRequest> requests, int64_t context, int64_t classes);
  int64_t size() const override { return static_cast<int64_t>(order_.size()); }
  const DataSpec& spec() const override { return spec_; }
  int64_t length(int64_t epoch, int64_t index) const override;
  Hash128 identity() const override { return identity_; }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return nullptr; }

  const std::vector<ScoreRequest>& requests() const { return requests_; }
  const std::vector<size_t>& order() const { return order_; }  // the request of each sample

 private:
  std::vector<ScoreRequest> requests_;
  std::vector<size_t> order_;
  DataSpec spec_;
  Hash128 identity_;
};

// Of each row of a batch of ScoreRequests, from the model's logits [B, T, N]: the bytes of a TokensScore.
std::string encoded_scores(const Tensor& logits, const Batch& batch);

}  // namespace lockstep
