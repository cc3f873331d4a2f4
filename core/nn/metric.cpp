#include "core/nn/metric.h"

#include <algorithm>

#include "core/base/ignore_index.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

MetricSum count_correct(const Tensor& output, const Tensor& labels) {
  if (output.rank() == 0 || !is_floating(output.dtype()) || labels.dtype() != DType::kInt32 ||
      !output.is_contiguous() || output.numel() != labels.numel() * output.dim(-1))
    return {};
  const int64_t classes = output.dim(-1);
  const Tensor logits = raw::to_host(raw::cast(output.detach(), DType::kFloat32)), wanted = raw::to_host(labels);
  const float* values = logits.values<float>();
  const int32_t* label = wanted.values<int32_t>();
  MetricSum out;
  int64_t correct = 0;
  for (int64_t i = 0; i < wanted.numel(); ++i) {
    if (label[i] == kIgnoreIndex) continue;
    const float* row = values + i * classes;
    correct += std::max_element(row, row + classes) - row == label[i];
    ++out.count;
  }
  out.sum = static_cast<double>(correct);
  return out;
}

Metric accuracy() {
  return {.name = "accuracy", .sum = [](const Tensor& output, const Batch& batch) {
            for (auto& [name, tensor] : batch.tensors())
              if (name == kLabels) return count_correct(output, tensor);
            return MetricSum{};
          }};
}

}  // namespace lockstep
