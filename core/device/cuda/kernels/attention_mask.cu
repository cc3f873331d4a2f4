#include "core/device/cuda/kernels/attention_mask.h"

#include "core/base/error.h"
#include "core/device/cuda/kernels/launch.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256, kKeys = 8;  // of a thread: 16 bytes

// One item: eight keys of one query. `hidden`: the bits of the number for keys that are not seen.
__global__ void __launch_bounds__(kThreads)
    mask_grid(const __grid_constant__ AttentionArgs a, uint16_t* out, int64_t chunks, uint16_t hidden) {
  const int64_t items = a.batch * a.time * chunks, step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < items; i += step) {
    const int64_t row = i / chunks, sample = row / a.time, query = row % a.time, key = i % chunks * kKeys;
    const int64_t end = a.lengths && a.lengths[sample] < a.key_time() ? a.lengths[sample] : a.key_time();
    for (int j = 0; j < kKeys; ++j)
      out[i * kKeys + j] = key + j < end && a.in_document(sample, query, key + j) ? uint16_t(0) : hidden;
  }
}

}  // namespace
}  // namespace lockstep::inline LOCKSTEP_ISA

namespace lockstep::cuda {

void attention_mask(Parallel& where, const AttentionArgs& a, void* out) {
  CudaQueue& queue = cuda_queue(where);
  check(a.dtype == DType::kBFloat16 || a.dtype == DType::kFloat16, "a mask of type ", a.dtype);
  const uint16_t hidden = a.dtype == DType::kBFloat16 ? 0xF149 : 0xFBFF;  // -1e30, and -65504, fp16's least
  const int64_t chunks = mask_stride(a) / kKeys;
  launch(mask_grid, queue, blocks_for(queue, a.batch * a.time * chunks, kThreads), kThreads, a,
         static_cast<uint16_t*>(out), chunks, hidden);
}

}  // namespace lockstep::cuda
