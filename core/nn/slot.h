// Slot: what an optimizer sees of a parameter, or of this rank's slice of it.
// Values; the memory belongs to DataParallel's groups.
// Knows nothing of why there is a slice.
#pragma once

#include <string>

#include "core/tensor/tensor.h"

namespace lockstep {

struct Slot {
  std::string name;    // dotted name of the parameter
  Shape global_shape;  // of the whole parameter
  int64_t offset = 0;  // first element of this slice, in the flattened parameter
  Tensor master;       // fp32 [n]
  Tensor gradient;     // fp32 [n]
  Tensor compute;      // the copy that the model reads, where it is not the master; [n]
  bool decay = false;
  double lr_scale = 1;
};

// Values that an update reads on the device when it runs, so that no optimizer waits for the host.
struct StepControl {
  static constexpr int kLr = 0, kGradScale = 1, kSkip = 2, kCount = 8;
};

}  // namespace lockstep
