// Gradcheck: compares an operation's backward pass with central differences, in fp64.
#pragma once

#include <functional>
#include <vector>

#include "core/tensor/tensor.h"

namespace lockstep::testing {

// Values in a fixed, reproducible spread.
Tensor random_tensor(const Shape& shape, uint64_t seed, double low = -1, double high = 1,
                     DType dtype = DType::kFloat64);

// Differentiates sum(w * f(inputs)) with fixed weights w by every element of every input; fails the running test where
// they differ by more than `tolerance` (absolute and relative).
void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
               double tolerance = 1e-6);

// Runs f in fp64, and in fp32, bf16 and fp16 on rounded inputs; fails where the results or the gradients differ by more
// than each type's rounding.
void each_dtype(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs,
                double scale = 1);

}  // namespace lockstep::testing
