// Values from nothing but their arguments: initial ones of parameters, and a few numbers of the host's; and the check
// of indices that come from data.
#include "core/device/cuda/kernels/launch.h"
#include "core/kernels/initial.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256;

// A thread a draw of four elements.
__global__ void __launch_bounds__(kThreads) initial_grid(const __grid_constant__ InitialArgs a, int64_t draws) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t d = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; d < draws; d += step) {
    const int64_t draw = a.begin / 4 + d;
    const Philox4 bits = philox(a.seed, static_cast<uint64_t>(draw), a.site);
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const int64_t i = 4 * draw + j;
      const float u = symmetric_of(bits.v[j]);
      if (i >= a.begin && i < a.end) a.out[i - a.begin] = a.scale * (a.normal ? normal_of(u) : u);
    }
  }
}

// A thread an element of a box.
__global__ void __launch_bounds__(kThreads) initial_box_grid(const __grid_constant__ InitialArgs a) {
  const int64_t step = int64_t(gridDim.x) * blockDim.x, count = a.end - a.begin;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += step) {
    const int64_t element = element_of(a, a.begin + i), lane = element % 4;
    const Philox4 bits = philox(a.seed, static_cast<uint64_t>(element / 4), a.site);
    const float u = symmetric_of(lane < 2 ? (lane == 0 ? bits.v[0] : bits.v[1]) : (lane == 2 ? bits.v[2] : bits.v[3]));
    a.out[i] = a.scale * (a.normal ? normal_of(u) : u);
  }
}

__global__ void store_grid(const __grid_constant__ StoreArgs a) {
  if (static_cast<int>(threadIdx.x) < a.count) a.out[threadIdx.x] = a.value[threadIdx.x];
}

// One block, so that the first offence by position is known without a second pass.
constexpr int kCheckThreads = 1024;
__global__ void __launch_bounds__(kCheckThreads) check_grid(const __grid_constant__ IndexCheckArgs a, IndexTrap* trap) {
  __shared__ int64_t of_warp[kCheckThreads / 32];
  int64_t first = a.count;
  constexpr int kAtOnce = 8;  // loads under way
  for (int64_t i0 = threadIdx.x; i0 < a.count; i0 += kAtOnce * kCheckThreads) {
    int32_t index[kAtOnce];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k)
      if (const int64_t i = i0 + k * kCheckThreads; i < a.count) index[k] = a.index[i];
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const int64_t i = i0 + k * kCheckThreads;
      if (i < a.count && i < first && index[k] != a.ignored && (index[k] < 0 || index[k] >= a.end)) first = i;
    }
  }
  for (int half = 16; half > 0; half /= 2) {
    const int64_t other = __shfl_xor_sync(0xFFFFFFFFu, first, half);
    first = other < first ? other : first;
  }
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = first;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int64_t other : of_warp) first = other < first ? other : first;
  volatile IndexTrap* const record = trap;
  if (first == a.count || record->set) return;
  record->use = static_cast<int32_t>(a.use);
  record->value = a.index[first];
  record->position = first;
  record->end = a.end;
  __threadfence_system();
  record->set = 1;
}

}  // namespace

void initial(Parallel& where, const InitialArgs& a) {
  if (a.begin >= a.end) return;
  CudaQueue& queue = cuda_queue(where);
  if (a.dims > 0) {
    launch(initial_box_grid, queue, blocks_for(queue, a.end - a.begin, kThreads), kThreads, a);
    return;
  }
  const int64_t draws = (a.end + 3) / 4 - a.begin / 4;
  launch(initial_grid, queue, blocks_for(queue, draws, kThreads), kThreads, a, draws);
}

void store(Parallel& where, const StoreArgs& a) { launch(store_grid, cuda_queue(where), 1, 32, a); }

void check_indices(Parallel& where, const IndexCheckArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  if (a.count > 0) launch(check_grid, queue, 1, kCheckThreads, a, queue.trap());
}

}  // namespace lockstep::inline LOCKSTEP_ISA
