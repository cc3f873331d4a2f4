// What the architectures of our bert share. A plain function.
#pragma once

#include <vector>

#include "core/base/field.h"

namespace lockstep {

// Whether a model with these options is a DistilBERT.
bool is_distilbert(const std::vector<Field>& options);

}  // namespace lockstep
