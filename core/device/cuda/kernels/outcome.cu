// What a step comes to, and an update's control buffer, on a GPU: a few hundred values, one block. Sums run in the
// CPU's order, on values that all threads have brought.
#include "core/kernels/outcome.h"

#include "core/device/cuda/kernels/launch.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

constexpr int kThreads = 256;

// visit(i) for i of [0, n) in order, by the first thread, of values that bring(i, slot) has put in slot of a stretch.
template <class Bring, class Visit>
__device__ void in_order(int64_t n, Bring bring, Visit visit) {
  for (int64_t at = 0; at < n; at += kThreads) {
    __syncthreads();
    if (at + threadIdx.x < n) bring(at + threadIdx.x, threadIdx.x);
    __syncthreads();
    const int64_t count = n - at < kThreads ? n - at : kThreads;
    if (threadIdx.x == 0)
      for (int64_t i = 0; i < count; ++i) visit(at + i, i);
  }
}

__global__ void __launch_bounds__(kThreads) outcome_grid(const __grid_constant__ StepOutcomeArgs a) {
  __shared__ double one[kThreads], other[kThreads];
  StepSums sums;  // the first thread's counts
  in_order(
      a.ranks, [&](int64_t r, int slot) { one[slot] = a.values[a.requests[r]]; },
      [&](int64_t, int64_t slot) { sums.requests |= static_cast<int>(one[slot]); });
  in_order(
      a.micro_batches,
      [&](int64_t i, int slot) { one[slot] = a.values[a.losses[i]], other[slot] = a.values[a.losses[i] + 1]; },
      [&](int64_t, int64_t slot) { sums.add_micro_batch(one[slot], other[slot]); });
  in_order(
      a.tensors, [&](int64_t p, int slot) { one[slot] = tensor_sum(a, p); },
      [&](int64_t p, int64_t slot) { sums.add_tensor(p, one[slot]); });
  if (threadIdx.x == 0) conclude(a, sums);
}

__global__ void __launch_bounds__(kThreads) fold_grid(const __grid_constant__ FoldArgs a) {
  if (a.verdict[UpdateControlArgs::kSkip] != 0) return;
  const int64_t step = int64_t(gridDim.x) * blockDim.x;
  for (int64_t e = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; e < a.elements; e += step) {
    float value = a.value[e];
    for (int64_t i = 0; i < a.count; ++i) value = folded(value, a.rows[a.order[i] * a.stride + e], a.rate);
    a.value[e] = value;
  }
}

__global__ void control_grid(const __grid_constant__ UpdateControlArgs a) { write_control(a); }

}  // namespace

void step_outcome(Parallel& where, const StepOutcomeArgs& a) {
  launch(outcome_grid, cuda_queue(where), 1, kThreads, a);
}
void fold(Parallel& where, const FoldArgs& a) {
  CudaQueue& queue = cuda_queue(where);
  launch(fold_grid, queue, blocks_for(queue, a.elements, kThreads), kThreads, a);
}
void update_control(Parallel& where, const UpdateControlArgs& a) { launch(control_grid, cuda_queue(where), 1, 1, a); }

}  // namespace lockstep::inline LOCKSTEP_ISA
