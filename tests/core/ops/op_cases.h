// The operations' test cases: each a function of tensors with inputs that exercise it.
// Plain values, made anew by each call.
#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "core/tensor/tensor.h"

namespace lockstep::testing {

// What must have the CPU's bits on a GPU, because one definition computes both in one order: where an operation's
// gradient adds up what broadcasting repeated, each device does so in an order of its own.
enum class Exact { kNothing, kResult, kAll };

struct OpCase {
  const char* name;
  std::function<Tensor(const std::vector<Tensor>&)> f;
  std::vector<Tensor> inputs;  // fp64; int32 for indices
  double tolerance = 1e-6;     // of the gradients against central differences
  double scale = 1;            // of the rounding allowed in lower precision
  Exact on_gpu = Exact::kNothing;
};
inline std::ostream& operator<<(std::ostream& out, const OpCase& c) { return out << c.name; }

std::vector<OpCase> op_cases();

}  // namespace lockstep::testing
