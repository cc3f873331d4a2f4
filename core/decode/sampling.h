// Sampling: which token follows a text, chosen from the logits of a language model. Plain values and functions.
#pragma once

#include <cstdint>
#include <span>

namespace lockstep {

struct Sampling {
  double temperature = 0.8;       // divides the logits; 0: always the likeliest
  int64_t top_k = 0;              // choose among so many of the likeliest only; 0: among all
  double top_p = 1;               // among the fewest of these that have this probability together
  double min_p = 0;               // and at least this part of the likeliest's probability
  double repetition_penalty = 1;  // divides positive logits of tokens that the text has, multiplies negative ones
  uint64_t seed = 1;              // of the choice
};

// Throws ExitCode::kUsage where a value lies outside of its range: temperature and top_k at least 0, top_p and min_p in
// [0, 1], repetition_penalty above 0 and finite.
void require_valid(const Sampling& sampling);

// The id of the token that follows `text`, whose ids are indices of `logits`. A function of its arguments alone: the
// random number is Philox's for the seed and `added`, the number of tokens that were chosen for this text before. Of
// two equal logits the one with the lower id comes first.
int32_t choose_token(std::span<const float> logits, std::span<const int32_t> text, const Sampling& sampling,
                     int64_t added);

}  // namespace lockstep
