#include "comm/reduce.h"

#include <algorithm>

#include "core/kernels/stage.h"

namespace lockstep {

template <class T>
void reduce_into(ReduceOp op, T* __restrict sum, const T* __restrict in, int64_t n) {
  switch (op) {
    case ReduceOp::kSum:
      for (int64_t i = 0; i < n; ++i) sum[i] = static_cast<T>(sum[i] + in[i]);
      break;
    case ReduceOp::kMax:  // the second comparison propagates a NaN
      for (int64_t i = 0; i < n; ++i) sum[i] = in[i] > sum[i] || in[i] != in[i] ? in[i] : sum[i];
      break;
    case ReduceOp::kMin:
      for (int64_t i = 0; i < n; ++i) sum[i] = in[i] < sum[i] || in[i] != in[i] ? in[i] : sum[i];
      break;
  }
}
template void reduce_into(ReduceOp, float*, const float*, int64_t);
template void reduce_into(ReduceOp, double*, const double*, int64_t);

namespace {

// One block's accumulator stays in the first-level cache; reading a whole block before writing it makes in-place calls
// safe.
constexpr int64_t kBlock = 2048;

template <class T>
void reduce_typed(ReduceOp op, const std::vector<const void*>& in, const std::vector<void*>& out, int64_t n) {
  alignas(64) T sum[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t size = std::min(kBlock, n - at);
    std::copy_n(static_cast<const T*>(in[0]) + at, size, sum);
    for (size_t r = 1; r < in.size(); ++r) reduce_into(op, sum, static_cast<const T*>(in[r]) + at, size);
    for (void* o : out) std::copy_n(sum, size, static_cast<T*>(o) + at);
  }
}

void reduce_halves(ReduceOp op, DType dtype, const std::vector<const void*>& in, const std::vector<void*>& out,
                   int64_t n) {
  alignas(64) float sum[kBlock], next[kBlock];
  alignas(64) uint16_t rounded[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t size = std::min(kBlock, n - at);
    load_run(in[0], dtype, at, 1, size, sum);
    for (size_t r = 1; r < in.size(); ++r) {
      load_run(in[r], dtype, at, 1, size, next);
      reduce_into(op, sum, next, size);
    }
    store_run(rounded, dtype, 0, 1, size, sum);
    for (void* o : out) std::copy_n(rounded, size, static_cast<uint16_t*>(o) + at);
  }
}

}  // namespace

void reduce_in_order(ReduceOp op, DType dtype, const std::vector<const void*>& in, const std::vector<void*>& out,
                     int64_t n) {
  if (n == 0) return;
  switch (dtype) {
    case DType::kFloat32: return reduce_typed<float>(op, in, out, n);
    case DType::kFloat64: return reduce_typed<double>(op, in, out, n);
    case DType::kInt64: return reduce_typed<int64_t>(op, in, out, n);
    case DType::kInt32: return reduce_typed<int32_t>(op, in, out, n);
    case DType::kUInt8: return reduce_typed<uint8_t>(op, in, out, n);
    case DType::kBFloat16:
    case DType::kFloat16: return reduce_halves(op, dtype, in, out, n);
    case DType::kNf4:
    case DType::kInt8: throw Error(ExitCode::kInternal, "codes cannot be added");
  }
}

void widen(float* out, const void* in, DType dtype, int64_t n) { load_run(in, dtype, 0, 1, n, out); }
void narrow_to(void* out, const float* in, DType dtype, int64_t n) { store_run(out, dtype, 0, 1, n, in); }

}  // namespace lockstep
