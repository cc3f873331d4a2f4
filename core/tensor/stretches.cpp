#include "core/tensor/stretches.h"

#include <algorithm>

#include "core/device/stream.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {

void for_each_stretch(const Tensor& t, int64_t most, const VisitStretch& visit) {
  const int64_t n = t.numel();
  const Tensor flat = t.flatten();
  if (t.device().in_host_memory() && t.dtype() == DType::kFloat32) {
    current_stream().synchronize();
    const float* values = flat.values<float>();
    for (int64_t at = 0; at < n; at += most) visit(at, values + at, std::min(most, n - at));
    return;
  }
  const auto values_of = [&](int64_t begin, int64_t end) {
    return raw::cast(flat.slice(0, begin, end), DType::kFloat32);
  };
  for_each_stretch(n, most, t.device(), values_of, visit);
}

void for_each_stretch(int64_t n, int64_t most, Device device,
                      const std::function<Tensor(int64_t begin, int64_t end)>& values_of, const VisitStretch& visit) {
  check(device.has_bytes(), "values on ", device);
  Tensor copies[2];
  Event there[2];
  const auto fetch = [&](int64_t at, int turn) {
    if (at >= n) return;
    const int64_t count = std::min(most, n - at);
    if (!copies[turn]) {
      copies[turn] = Tensor::unallocated({count}, DType::kFloat32, host_memory_of(device));
      copies[turn].allocate();
    }
    raw::copy(copies[turn].slice(0, 0, count), values_of(at, at + count));
    there[turn] = current_stream().record();
  };
  fetch(0, 0);
  for (int64_t at = 0, turn = 0; at < n; at += most, turn ^= 1) {
    fetch(at + most, static_cast<int>(turn ^ 1));
    there[turn].synchronize();
    visit(at, static_cast<const float*>(copies[turn].read()), std::min(most, n - at));
  }
}

}  // namespace lockstep
