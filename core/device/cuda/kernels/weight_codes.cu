// Codes of frozen weights to values: the bits are a CPU's.
#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/args.h"
#include "core/kernels/codes/weight_codes.h"
#include "core/kernels/stage.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads) decode_grid(const __grid_constant__ WeightCodesArgs a, int64_t width) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count; i += step) {
    const auto* block = static_cast<const uint8_t*>(a.codes) + i / kCodedBlock * width;
    const float scale = *reinterpret_cast<const float*>(block + width - 4);
    store_element(a.values, a.values_dtype, i, decode_weight(a.coding, block, scale, i % kCodedBlock));
  }
}

}  // namespace

void decode_weight(Parallel& where, const WeightCodesArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  launch(decode_grid, queue, blocks_for(queue, a.count, kThreads), kThreads, a, bytes_of_block(a.coding));
}

}  // namespace lockstep::inline LOCKSTEP_ISA
