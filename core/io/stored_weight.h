// StoredWeight: one tensor of a file of weights, of whatever format. A plain value.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/shape.h"

namespace lockstep {

struct StoredWeight {
  std::string name;
  std::string type;   // as the format spells it: "F32", "BF16", "I64"; of codes (core/io/coded_weights.h) "NF4", "INT8"
  Shape shape;        // [] for a scalar
  size_t file = 0;    // of WeightFiles
  int64_t begin = 0;  // in that file, or in the file's array of that name, in bytes
};

}  // namespace lockstep
