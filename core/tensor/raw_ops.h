// Raw operations: kernels applied to tensors, on the current stream, without autograd.
// Plain functions; outputs are allocated by the caller unless returned.
#pragma once

#include <functional>
#include <initializer_list>
#include <string_view>

#include "core/kernels/cost.h"
#include "core/kernels/kernels.h"
#include "core/tensor/tensor.h"

namespace lockstep::raw {

// Runs kernel(Parallel&, args) in the order of the current stream; `args` is copied. A task must hold addresses, not
// tensors: a tensor's block is freed in the order of the current stream of the thread that drops it, and a stream's own
// thread has no current stream.
template <class Kernel, class Args>
void launch(Kernel kernel, const Args& args) {
  current_stream().enqueue([kernel, args](Parallel& p) { kernel(p, args); },
                           counts_costs() ? cost_of(args) : TaskCost{});
}

// out[j] = op(ins...), inputs broadcast to out's shape. Any strides, any dtypes.
void pointwise(PointwiseOp op, std::initializer_list<Tensor> outs, std::initializer_list<Tensor> ins, double s0 = 0,
               double s1 = 0);
// Builds the arguments only, for kernels of other folders.
PointwiseArgs pointwise_args(std::initializer_list<Tensor> outs, std::initializer_list<Tensor> ins);

void row(RowOp op, const RowArgs& args);
RowArgs rows_along_last(const Tensor& t);  // the rows of its last dimension, without operands
// Of what is summed up over elements of `t`: fp32, or fp64 where `t` is.
inline DType statistics_type(const Tensor& t) {
  return t.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32;
}
// Operands: the rows of a contiguous matrix; a vector with one value for each row; one row for all.
RowOperand rows_of(const Tensor& matrix, int64_t cols);
RowOperand one_per_row(const Tensor& vector);
RowOperand same_row(const Tensor& row);
RowOperand write_rows(const Tensor& matrix, int64_t cols);
RowOperand write_one_per_row(const Tensor& vector);

// Runs on the stream, as what wrote the index may still be under way (IndexCheckArgs has the errors).
void check_indices(const Tensor& index, int64_t end, IndexCheckArgs::Use use,
                   int64_t ignored = IndexCheckArgs{}.ignored);
// The samples of the micro-batch (context().random), int64 [shape[0]], for kernels that draw random numbers of `shape`.
// Throws ExitCode::kInternal, beginning with `what`, where these are others, kConfig while a step is recorded.
Tensor samples_of(std::string_view what, const Shape& shape);

void fill(const Tensor& out, double value);
// With conversion, broadcast and strides; between a GPU and the host too, in the order of the current stream.
void copy(const Tensor& out, const Tensor& in);
void add(const Tensor& out, const Tensor& a, const Tensor& b);
// These return `t` itself if nothing has to be done.
Tensor contiguous(const Tensor& t);
Tensor cast(const Tensor& t, DType dtype);
Tensor to_device(const Tensor& t, Device device);  // contiguous
// Contiguous, in memory that the host can read once the current stream is synchronised.
Tensor to_host(const Tensor& t);
// fp32 values [n] to 8-bit codes (uint8 [n]) with a scale for each kStateChunk of them (fp32 [n / kStateChunk, rounded
// up]), and back. Values that were decoded are encoded without loss.
void encode_blocks(const Tensor& codes, const Tensor& scales, const Tensor& values);
void decode_blocks(const Tensor& values, const Tensor& codes, const Tensor& scales);
// Sums over `dims` (sorted); in `out` these dimensions have extent 1 or are left out.
void sum_dims(const Tensor& out, const Tensor& in, const std::vector<int>& dims, bool accumulate = false);
// out[c] = the sum of column c of `in` [rows, cols], contiguous, as sum_dims() sums a row: on a CPU the same bits.
void sum_columns_as_rows(const Tensor& out, const Tensor& in);
// The reverse of broadcasting: sums `in` to `shape`; returns `in` itself if it has that shape.
Tensor sum_to(const Tensor& in, const Shape& shape, DType dtype);
// C = A B (+ bias) or C += A B. Rank-2 or batched rank-3 operands of any strides (a batch of one repeats); C's rows
// contiguous.
void gemm(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias = {}, bool accumulate = false);
// pre = A B (+ bias), y = gelu(pre). Rank 2; y and pre of one type, each contiguous.
void gemm_gelu(const Tensor& y, const Tensor& pre, const Tensor& a, const Tensor& b, const Tensor& bias = {});
// C = (A B) gelu'(pre), element by element; as above.
void gemm_gelu_backward(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& pre);
// Called on this thread with the result of each of the products here once it is in order on the current stream; empty:
// nothing is. For faults that are injected.
void set_product_observer(std::function<void(const Tensor& result)> observer);
bool has_product_observer();
void observe_product(const Tensor& result);  // of another kernel; where there is an observer
// Where a gradient goes: `out` is overwritten, or added to.
struct GradientTarget {
  Tensor out;
  bool accumulate = false;
};
// Gradients of weight and bias of y[N, out] = x[N, in] weight[out, in]^T + bias[out], given the gradient g of y: g^T x
// and the sum of g's rows. g and x contiguous.
void linear_gradients(const GradientTarget& weight, const GradientTarget& bias, const Tensor& g, const Tensor& x);
// Whether every element is finite; synchronises the current stream.
bool all_finite(const Tensor& t);

}  // namespace lockstep::raw
