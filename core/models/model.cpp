#include "core/models/model.h"

#include <algorithm>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

Tensor Model::loss(Tensor output, const Tensor& target) { return cross_entropy(std::move(output), target); }

int64_t count_correct(const Tensor& output, const Tensor& target) {
  if (output.rank() == 0 || !is_floating(output.dtype()) || target.dtype() != DType::kInt32 ||
      !output.is_contiguous() || output.numel() != target.numel() * output.dim(-1))
    return -1;
  const int64_t classes = output.dim(-1);
  const Tensor logits = raw::to_host(raw::cast(output.detach(), DType::kFloat32)), targets = raw::to_host(target);
  const float* values = logits.values<float>();
  const int32_t* wanted = targets.values<int32_t>();
  int64_t correct = 0;
  for (int64_t i = 0; i < target.numel(); ++i) {
    if (wanted[i] == kIgnoreIndex) continue;
    const float* row = values + i * classes;
    correct += std::max_element(row, row + classes) - row == wanted[i];
  }
  return correct;
}

}  // namespace lockstep
