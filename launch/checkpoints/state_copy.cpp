#include "launch/checkpoints/state_copy.h"

#include <algorithm>

#include "core/base/partition.h"
#include "core/base/trace.h"
#include "core/device/stream.h"
#include "core/kernels/attention/past_caches.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kDecoded = 1 << 20;  // elements at a time, whose copy takes memory on the device
constexpr int64_t kStretch = 1 << 18;  // elements that a thread copies at a time, at least

}  // namespace

std::vector<int64_t> places_of(const std::vector<StateEntry>& entries, int64_t alignment) {
  std::vector<int64_t> out{0};
  for (const StateEntry& e : entries) out.push_back(round_up(out.back() + e.data.numel(), alignment));
  return out;
}

void copy_state(const std::vector<StateEntry>& entries, const Tensor& to, const std::vector<int64_t>& places) {
  const TraceOp op("copy_to_save");
  Stream& now = current_stream();
  for (size_t i = 0; i < entries.size(); ++i) {
    const StateEntry& e = entries[i];
    const int64_t n = e.data.numel();
    const Tensor copy = to.slice(0, places[i], places[i] + n);
    if (e.scales) {
      for (int64_t begin = 0; begin < n; begin += kDecoded) {
        const int64_t end = std::min(n, begin + kDecoded);
        raw::copy(copy.slice(0, begin, end), e.values(begin, end));
      }
      continue;
    }
    if (now.device_queue() || e.data.dtype() != DType::kFloat32) {
      raw::copy(copy, e.data);
      continue;
    }
    const auto* from = static_cast<const float*>(e.data.read());
    auto* into = static_cast<float*>(copy.write());
    now.enqueue(
        [from, into, n](Parallel& parallel) {
          auto body = [&](int64_t begin, int64_t end) { copy_past_caches(into + begin, from + begin, end - begin); };
          parallel.run(n, kStretch, body);
        },
        {"copy", 2 * n * size_of(DType::kFloat32)});
  }
}

}  // namespace lockstep
