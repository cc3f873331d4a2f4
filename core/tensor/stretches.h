// Values of a tensor brought to the host a piece at a time. Plain functions.
#pragma once

#include <functional>

#include "core/tensor/tensor.h"

namespace lockstep {

// `values`: host memory that is valid during the visit; `at` counts from the first element.
using VisitStretch = std::function<void(int64_t at, const float* values, int64_t n)>;

// Calls visit(at, values, n) for consecutive pieces of at most `most` elements of `t`, which is contiguous. `values`
// are t's own where they are fp32 in host memory, else a copy; the next piece is copied during a visit. Sees the work
// enqueued on the current stream before.
void for_each_stretch(const Tensor& t, int64_t most, const VisitStretch& visit);

// The same of n elements on `device`, of which values_of(begin, end) gives some in fp32.
void for_each_stretch(int64_t n, int64_t most, Device device,
                      const std::function<Tensor(int64_t begin, int64_t end)>& values_of, const VisitStretch& visit);

}  // namespace lockstep
