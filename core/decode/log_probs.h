// Log-probabilities of tokens, from a language model's logits: natural logarithms, in double precision.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace lockstep {

struct TokenLogProb {
  int32_t token = 0;
  double log_prob = 0;
};

struct LogProbs {
  TokenLogProb chosen;
  std::vector<TokenLogProb> likeliest;  // in decreasing order; of equal ones the lower id comes first
};

// log(sum(exp(logits))), summed in the order of the logits, less their maximum. At least one logit.
double log_sum_exp(std::span<const float> logits);

// Of the softmax over all `logits`: of `chosen`, and of the `most` likeliest among the tokens below `tokens` (a model
// may have more logits than its vocabulary has tokens).
LogProbs log_probs_of(std::span<const float> logits, int64_t tokens, int32_t chosen, int64_t most);

}  // namespace lockstep
