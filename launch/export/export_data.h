// What a folder of transformers says of the data that its model was trained on: tokenizer, class names, preprocessing.
// Plain functions, for `checkpoint export`.
#pragma once

#include <string>

#include "core/interop/hf_model.h"
#include "core/state/checkpoint.h"
#include "data/samples/schema.h"

namespace lockstep {

// Adds what the run of `checkpoint` was trained on; `data` is null where nobody knows. What the folder `source`, which
// the run began with, says of other data is left out; empty: the run began with none.
void add_data_of_run(const Checkpoint& checkpoint, const LikeData* data, const std::string& source, HfExport& out);

}  // namespace lockstep
