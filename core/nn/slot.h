// Slot: a parameter, or this rank's slice of it, as an optimizer sees it.
// Values; the memory belongs to DataParallel's buckets.
#pragma once

#include <string>

#include "core/tensor/tensor.h"

namespace lockstep {

struct Slot {
  std::string name;             // dotted name of the parameter
  Shape global_shape;           // of the whole parameter
  int64_t offset = 0;           // first element of this slice, in the flattened parameter
  Tensor master;                // fp32 [n]; n may be 0
  Tensor gradient;              // fp32 [n]
  Tensor copy;                  // if defined [n]: an update may write the new master here too, converted to this type
  bool in_host_memory = false;  // master and moments are; updates copy them to the device chunk by chunk
  bool decay = false;
  double lr_scale = 1;
};

}  // namespace lockstep
