// How many tokens and positions a language model holds: as many as its data has, or more, as a model does that was
// trained on other data before; and how many products a text takes.
#pragma once

#include <algorithm>
#include <string_view>

#include "core/base/field.h"
#include "core/models/model.h"

namespace lockstep {

inline Field vocabulary_field(int64_t& vocabulary) {
  return field("vocabulary", vocabulary,
               "tokens that the model holds, at least those of the data; 0: those of the data")
      .with_unit("tokens")
      .with_range(0, 1 << 30)
      .without_effect_at_default();
}
inline Field positions_field(int64_t& positions) {
  return field("positions", positions,
               "positions that the model holds, at least those of a sample; 0: those of a sample")
      .with_unit("tokens")
      .with_range(0, 1 << 30)
      .without_effect_at_default();
}

// The option, or what the data has where it is 0. Throws ExitCode::kConfig naming the key where it is too small.
inline int64_t vocabulary_of(int64_t option, const TaskSpec& task) {
  require(option == 0 || option >= task.tokens(), ExitCode::kConfig, "model.vocabulary: ", option,
          " tokens are fewer than the ", task.tokens(), " of the data");
  return option > 0 ? option : task.tokens();
}
inline int64_t positions_of(int64_t option, int64_t context) {
  require(option == 0 || option >= context, ExitCode::kConfig, "model.positions: ", option, " are fewer than the ",
          context, " tokens of a sample; lower data.context");
  return option > 0 ? option : context;
}

// Keys that a token of a text of `time` tokens attends to under a causal mask, itself among them: the mean over its
// positions. `window`: at most so many; 0: all.
inline double visible_keys(int64_t time, int64_t window = 0) {
  const auto limit = static_cast<double>(window > 0 ? std::min(window, time) : time);
  return limit - limit * (limit - 1) / (2 * static_cast<double>(time));
}

// Elements of the matrices by which features are multiplied; tables whose rows are looked up are none of them.
inline int64_t multiplying_parameters(const Module& model) {
  int64_t out = 0;
  for (const NamedParameter& p : model.parameters())
    if (p.parameter->value.rank() >= 2 && !p.parameter->table) out += p.parameter->value.numel();
  return out;
}

// Floating-point operations of the matrix products in a decoder's forward and backward pass over a text of `time`
// tokens. Per token: 6 per parameter that multiplies it, plus attention over the visible keys, 12 per key and feature
// of the heads. `keys`: the sum of visible_keys() over all layers; `features`: of all heads of a layer.
inline double decoder_flops(int64_t time, int64_t parameters, int64_t features, double keys) {
  return static_cast<double>(time) * (6 * static_cast<double>(parameters) + 12 * static_cast<double>(features) * keys);
}

}  // namespace lockstep
