// Slot: what an optimizer sees of a parameter, or of this rank's slice of it.
// Values; the memory belongs to DataParallel's buckets.
#pragma once

#include <string>

#include "core/tensor/tensor.h"

namespace lockstep {

struct Slot {
  std::string name;    // dotted name of the parameter
  Shape global_shape;  // of the whole parameter
  int64_t offset = 0;  // first element of this slice, in the flattened parameter
  Tensor master;       // fp32 [n]; n may be 0
  Tensor gradient;     // fp32 [n]
  Tensor copy;  // where who writes the master by Tensor::write may write it once more, in this type [n]; or undefined
  bool in_host_memory = false;  // the master, and the moments with it; updates take them through the device by chunk
  bool decay = false;
  double lr_scale = 1;
};

}  // namespace lockstep
