// How many tokens and positions a language model holds: as many as its data has, or more, as a model does that was
// trained on other data before. Plain functions.
#pragma once

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

}  // namespace lockstep
