#include "core/device/cuda/kernels/cross_entropy.h"

#include "core/device/cuda/kernels/row_grid.h"

namespace lockstep {
inline namespace LOCKSTEP_ISA {
namespace {

constexpr int kLoadsAtOnce = 4;
constexpr float kLog2e = 1.44269504088896341f;

// e^x, to 2^-22 of it: the processor's own, as this kernel is bound by the number of its instructions.
__device__ inline float quick_exp(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x * kLog2e));
  return y;
#else
  return std::exp2(x * kLog2e);
#endif
}

// sum of e^(x - max) over some of the logits. The first maximum is finite, so that logits of -inf add nothing.
struct Exponentials {
  float max = -3.402823466e+38f, sum = 0;

  __device__ void rescale_to(float larger) {
    if (larger == max) return;
    sum *= quick_exp(max - larger);
    max = larger;
  }
  __device__ void add(const Exponentials& other) {
    const float larger = other.max > max ? other.max : max;
    rescale_to(larger);
    sum += other.max == larger ? other.sum : other.sum * quick_exp(other.max - larger);
  }
};

// What the kernel reads and writes, whichever operation it is.
struct CrossEntropyOperands {
  const void* logits;  // [rows, cols]
  void* dlogits;       // likewise; may be the logits' memory
  RowOperand target, loss, lse, g;
  int64_t rows, cols, logits_stride, dlogits_stride, ignored_target;
  float loss_gradient;  // where g has no data
};

__device__ inline int chunk_left(int64_t cols, int q) {
  const int64_t left = cols - int64_t(q) * kChunk;
  return left < kChunk ? static_cast<int>(left) : kChunk;
}

// Calls use(chunk, its number, elements of it that are there) for the chunks that this thread has of a row.
template <DType kType, class Use>
__device__ void each_chunk(const void* row, int64_t cols, Use use) {
  const int chunks = static_cast<int>(chunks_of(cols)), threads = static_cast<int>(blockDim.x);
  for (int q0 = static_cast<int>(threadIdx.x); q0 < chunks; q0 += kLoadsAtOnce * threads) {
    Raw loaded[kLoadsAtOnce];
#pragma unroll
    for (int k = 0; k < kLoadsAtOnce; ++k)
      if (const int q = q0 + k * threads; q < chunks)
        loaded[k] = load_raw(row, kType, int64_t(q) * kChunk, chunk_left(cols, q));
#pragma unroll
    for (int k = 0; k < kLoadsAtOnce; ++k)
      if (const int q = q0 + k * threads; q < chunks) use(chunk_of(loaded[k], kType), q, chunk_left(cols, q));
  }
}

// A thread's chunks one after another, then a tree over the lanes, then warp after warp: the order of a row's sum
// follows from its length. `partial`: one for each warp; the caller's next barrier is before it is written again.
template <DType kType>
__device__ float block_log_sum_exp(const void* row, int64_t cols, Exponentials* partial) {
  Exponentials mine;
  each_chunk<kType>(row, cols, [&](const Chunk<float>& x, int, int left) {
    float largest = mine.max;
#pragma unroll
    for (int l = 0; l < kChunk; ++l) largest = x.v[l] > largest ? x.v[l] : largest;  // beyond `left` stands the last
    mine.rescale_to(largest);
#pragma unroll
    for (int l = 0; l < kChunk; ++l) {
      const float e = quick_exp(x.v[l] - mine.max);
      mine.sum += l < left ? e : 0.0f;
    }
  });
#pragma unroll
  for (int half = 16; half > 0; half /= 2) {
    const float max = __shfl_down_sync(0xFFFFFFFFu, mine.max, static_cast<unsigned>(half));
    const float sum = __shfl_down_sync(0xFFFFFFFFu, mine.sum, static_cast<unsigned>(half));
    Exponentials other;
    other.max = max, other.sum = sum;
    mine.add(other);  // of lane 0 in the end; what the others have is not used
  }
  if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = mine;
  __syncthreads();
  Exponentials all = partial[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) all.add(partial[w]);
  return all.max + log_of(all.sum);
}

template <DType kType, bool kSums, bool kGradient>
__global__ void __launch_bounds__(kMostRowThreads) long_cross_entropy(const __grid_constant__ CrossEntropyOperands a) {
  __shared__ Exponentials partial[2][kMostRowThreads / 32];  // in turn: one barrier a row is enough
  int turn = 0;
  for (int64_t r = blockIdx.x; r < a.rows; r += gridDim.x) {
    constexpr int64_t kSize = kType == DType::kFloat32 ? 4 : 2;
    const void* row = static_cast<const char*>(a.logits) + r * a.logits_stride * kSize;
    const int64_t at = r * a.target.row_stride;
    const int64_t target = a.target.dtype == DType::kInt64 ? static_cast<const int64_t*>(a.target.data)[at]
                                                           : static_cast<const int32_t*>(a.target.data)[at];
    const bool ignored = target == a.ignored_target;
    float lse = 0;
    if constexpr (kSums) {
      // Before the gradient, which may lie there, is written: no thread does before the barrier.
      float at_target = 0;  // an index that lies outside is not followed: check_indices reports it
      if (threadIdx.x == 0 && target >= 0 && target < a.cols) at_target = load_element<float>(row, kType, target);
      lse = block_log_sum_exp<kType>(row, a.cols, partial[turn]);
      turn ^= 1;
      if (threadIdx.x == 0) {
        store_element<float>(a.loss.data, a.loss.dtype, r * a.loss.row_stride, ignored ? 0.0f : lse - at_target);
        if (a.lse.data) store_element<float>(a.lse.data, a.lse.dtype, r * a.lse.row_stride, lse);
      }
    } else {
      lse = load_element<float>(a.lse.data, a.lse.dtype, r * a.lse.row_stride);
    }
    if constexpr (kGradient) {
      const float g = ignored    ? 0.0f
                      : a.g.data ? load_element<float>(a.g.data, a.g.dtype, r * a.g.row_stride)
                                 : a.loss_gradient;
      void* to = static_cast<char*>(a.dlogits) + r * a.dlogits_stride * kSize;
      each_chunk<kType>(row, a.cols, [&](const Chunk<float>& x, int q, int left) {
        const int64_t first = int64_t(q) * kChunk;
        Chunk<float> dx;
#pragma unroll
        for (int l = 0; l < kChunk; ++l)
          dx.v[l] = ignored ? 0.0f : g * (quick_exp(x.v[l] - lse) - (first + l == target ? 1.0f : 0.0f));
        store_chunk(to, kType, first, left, dx);
      });
    }
  }
}

template <DType kType>
void launch_cross_entropy(CudaQueue& queue, RowOp op, const CrossEntropyOperands& a) {
  const int threads = row_threads(a.cols);
  const int64_t blocks = blocks_for(queue, a.rows * threads, threads);
  const auto run = [&](auto kernel) { launch(kernel, queue, blocks, threads, a); };
  if (op == RowOp::kCrossEntropy) run(long_cross_entropy<kType, true, false>);
  else if (op == RowOp::kCrossEntropyBackward) run(long_cross_entropy<kType, false, true>);
  else run(long_cross_entropy<kType, true, true>);
}

CrossEntropyOperands operands_of(RowOp op, const RowArgs& a) {
  using One = CrossEntropyInOnePassRows;
  using Forward = CrossEntropyRows;
  using Backward = CrossEntropyBackwardRows;
  const auto in = [&](RowIn j) { return a.in[static_cast<int>(j)]; };
  const auto out = [&](RowOut j) { return a.out[static_cast<int>(j)]; };
  CrossEntropyOperands o{};
  o.rows = a.rows, o.cols = a.cols, o.ignored_target = a.ignored_target;
  o.loss_gradient = static_cast<float>(a.loss_gradient);
  o.logits = in(One::kLogits).data, o.logits_stride = in(One::kLogits).row_stride;
  o.target = in(One::kTarget);
  if (op == RowOp::kCrossEntropy) {
    o.loss = out(Forward::kLoss), o.lse = out(Forward::kLse);
    return o;
  }
  RowOut gradient = One::kDlogits;
  if (op == RowOp::kCrossEntropyBackward) {
    gradient = Backward::kDlogits;
    o.lse = in(Backward::kLse), o.g = in(Backward::kG);
  } else {
    o.loss = out(One::kLoss);
  }
  o.dlogits = out(gradient).data, o.dlogits_stride = out(gradient).row_stride;
  return o;
}

}  // namespace
}  // namespace LOCKSTEP_ISA

bool cuda::cross_entropy(Parallel& where, RowOp op, const RowArgs& a) {
  if (op != RowOp::kCrossEntropy && op != RowOp::kCrossEntropyBackward && op != RowOp::kCrossEntropyInOnePass)
    return false;
  const DType type = a.in[static_cast<int>(CrossEntropyRows::kLogits)].dtype;
  const bool same = op == RowOp::kCrossEntropy || a.out[0].dtype == type;  // the gradient's is the first
  if (a.cols <= kWarpCols || a.label_smoothing != 0 || !fits_chunk(type) || !same) return false;
  CudaQueue& queue = cuda_queue(where);
  const CrossEntropyOperands o = operands_of(op, a);
  if (type == DType::kBFloat16) launch_cross_entropy<DType::kBFloat16>(queue, op, o);
  else if (type == DType::kFloat16) launch_cross_entropy<DType::kFloat16>(queue, op, o);
  else launch_cross_entropy<DType::kFloat32>(queue, op, o);
  return true;
}

}  // namespace lockstep
