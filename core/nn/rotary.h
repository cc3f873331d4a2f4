// Frequencies of rotary position embeddings: the options, and how they become the numbers that rotary()
// (core/ops/ops.h) takes. Plain functions and values.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/field.h"

namespace lockstep {

// How a model trained on short texts is stretched to longer ones.
enum class RopeScaling {
  kNone,
  kLinear,    // all frequencies divided by `factor` (Chen et al. 2023)
  kLlama3,    // low frequencies divided by `factor`, high ones kept, those in between interpolated (Llama 3.1)
  kYarn,      // likewise, between pairs of elements, and larger scores (Peng et al. 2023, "YaRN")
  kLongrope,  // each divided by a factor of its own, other ones for long texts, and larger scores (Ding et al. 2024)
};

struct RopeOptions {
  double theta = 10000;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 8;
  // kLlama3: wavelengths above context / low_factor positions are divided, those below context / high_factor are kept.
  double low_factor = 1, high_factor = 4;
  int64_t context = 8192;  // of the model before it was stretched, in positions
  // kYarn: pairs that turn more than beta_fast times in `context` are kept, those that turn less than beta_slow times
  // are divided; where these are, in whole pairs with `whole_pairs`.
  double beta_fast = 32, beta_slow = 1;
  bool whole_pairs = true;
  // What queries and keys are multiplied by; 0: kYarn 0.1 ln(factor) + 1, kLongrope sqrt(1 + ln(factor) / ln(context)).
  double attention = 0;
  // kLongrope: of each pair, for texts of up to `context` positions and for longer ones.
  std::vector<double> short_factors = {}, long_factors = {};
  // kLongrope: whether the texts of a pass decide which, by the longest of them; else the model's context does.
  bool by_length = false;
};
std::vector<Field> fields(RopeOptions& o);

// Radians a position for each of the dim / 2 pairs of elements of a head: theta^(-2 i / dim), scaled; for texts of up
// to `longest` positions, all of which have those of the longest. Throws ExitCode::kConfig, naming the key, where the
// options do not fit together.
std::vector<double> rope_frequencies(const RopeOptions& o, int64_t dim, int64_t longest);
// What scores are multiplied by beside their usual scale: the square of what queries and keys are.
double rope_score_scale(const RopeOptions& o);

}  // namespace lockstep
