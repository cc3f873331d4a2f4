// The operations' test cases: each a function of tensors with inputs that exercise it.
// Plain values, made anew by each call.
#pragma once

#include <functional>
#include <ostream>
#include <vector>

#include "core/tensor/tensor.h"

namespace lockstep::testing {

struct OpCase {
  const char* name;
  std::function<Tensor(const std::vector<Tensor>&)> f;
  std::vector<Tensor> inputs;  // fp64; int32 for indices
  double tolerance = 1e-6;     // of the gradients against central differences
  double scale = 1;            // of the rounding allowed in lower precision
};
inline std::ostream& operator<<(std::ostream& out, const OpCase& c) { return out << c.name; }

std::vector<OpCase> op_cases();

}  // namespace lockstep::testing
