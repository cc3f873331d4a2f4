// GradientSink: who is told of gradients as a backward pass makes them.
#pragma once

#include <functional>
#include <string>

#include "core/tensor/tensor.h"

namespace lockstep {

// Takes a parameter's gradient, fp32, before it is rounded, added up or exchanged. Called in backward, in the order in
// which buckets are complete; the tensor is valid until it returns.
using GradientSink = std::function<void(const std::string& name, const Tensor& gradient)>;

}  // namespace lockstep
