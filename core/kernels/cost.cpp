#include "core/kernels/cost.h"

#include <algorithm>

namespace lockstep {
namespace {

int64_t bytes_of(const void* data, int64_t elements, DType dtype) { return data ? elements * size_of(dtype) : 0; }

int64_t bytes_of(const PointwiseArgs& a, const Operand& o) {
  int64_t elements = 1;  // without those that broadcasting repeats
  for (int d = 0; d < a.dims; ++d)
    if (o.strides[d] != 0) elements *= a.sizes[d];
  return bytes_of(o.data, elements, o.dtype);
}

// A matrix, a vector of one value a row, or one row for all.
int64_t bytes_of(const RowArgs& a, const RowOperand& o) {
  return bytes_of(o.data, o.row_stride == 0 ? a.cols : a.rows * std::min(o.row_stride, a.cols), o.dtype);
}

int64_t bytes_of(const GemmArgs& g, const Matrix& m, int64_t elements) {
  return bytes_of(m.data, elements * (m.batch_stride == 0 ? 1 : g.batch), m.dtype);
}

}  // namespace

TaskCost cost_of(const PointwiseArgs& a) {
  TaskCost cost{"pointwise"};
  for (int i = 0; i < a.ins; ++i) cost.bytes += bytes_of(a, a.in[i]);
  for (int i = 0; i < a.outs; ++i) cost.bytes += bytes_of(a, a.out[i]);
  return cost;
}

TaskCost cost_of(PointwiseOp op, const PointwiseArgs& a) {
  TaskCost cost = cost_of(a);
  if (op == PointwiseOp::kCopy) cost.kernel = "copy";
  if (op == PointwiseOp::kFill) cost.kernel = "fill";
  return cost;
}

TaskCost cost_of(RowOp op, const RowArgs& a) {
  TaskCost cost{"rows"};
  if (op == RowOp::kRescale) return cost;  // nearly always there is nothing to rescale
  for (const RowOperand& o : a.in) cost.bytes += bytes_of(a, o);
  for (const RowOperand& o : a.out) cost.bytes += bytes_of(a, o);
  return cost;
}

TaskCost cost_of(const ColumnArgs& a) {
  return {"column_sum",
          bytes_of(a.in, a.batch * a.rows * a.cols, a.in_dtype) + bytes_of(a.out, a.batch * a.cols, a.out_dtype)};
}

TaskCost cost_of(const NormColumnsArgs& a) {
  const int64_t all = a.rows * a.cols;
  return {"norm_columns", bytes_of(a.g, all, a.g_dtype) + bytes_of(a.x, all, a.x_dtype) +
                              bytes_of(a.dweight, a.cols, a.dweight_dtype) + bytes_of(a.dbias, a.cols, a.dbias_dtype)};
}

TaskCost cost_of(const ChannelSumsArgs& a) {
  const int64_t all = a.batch * a.rows * a.channels;
  return {"channel_sums", bytes_of(a.x, all, a.x_dtype) + bytes_of(a.g, all, a.g_dtype)};
}

TaskCost cost_of(const GatherArgs& a) {
  const int64_t all = a.rows * a.cols;
  return {"gather", bytes_of(a.table, all, a.table_dtype) + bytes_of(a.rows_data, all, a.rows_dtype) +
                        bytes_of(a.index, a.rows, DType::kInt32)};
}

TaskCost cost_of(const GemmArgs& a) {
  const int64_t bytes = bytes_of(a, a.a, a.m * a.k) + bytes_of(a, a.b, a.k * a.n) + bytes_of(a, a.c, a.m * a.n) +
                        bytes_of(a.bias, a.n, a.bias_dtype) + bytes_of(a.aux, a.m * a.n, a.c.dtype) +
                        bytes_of(a.bias_gradient, a.m, a.bias_gradient_dtype);
  return {"gemm", bytes, 2.0 * static_cast<double>(a.batch * a.m) * static_cast<double>(a.n * a.k)};
}

TaskCost cost_of(const ConvArgs& a) {
  const int64_t window = a.kernel_h * a.kernel_w * a.in_channels / a.groups,
                pixels = a.images * a.out_height * a.out_width;
  const int64_t bytes = bytes_of(a.x, a.images * a.height * a.width * a.in_channels, a.x_dtype) +
                        bytes_of(a.weight, window * a.out_channels, a.weight_dtype) +
                        bytes_of(a.y, pixels * a.out_channels, a.y_dtype) +
                        bytes_of(a.bias, a.out_channels, a.bias_dtype);
  return {"conv", bytes, 2.0 * static_cast<double>(pixels) * static_cast<double>(window * a.out_channels)};
}

TaskCost cost_of(const PoolArgs& a) {
  const int64_t out = a.images * a.out_height * a.out_width * a.channels;
  return {"max_pool", bytes_of(a.x, a.images * a.height * a.width * a.channels, a.dtype) + bytes_of(a.y, out, a.dtype) +
                          bytes_of(a.index, out, DType::kUInt8)};
}

TaskCost cost_of(const ResampleArgs& a) {
  const int64_t lines = a.images * a.channels;
  return {"resample", bytes_of(a.x, lines * a.height.in * a.width.in, a.dtype) +
                          bytes_of(a.y, lines * a.height.out * a.width.out, a.dtype)};
}

TaskCost cost_of(const RotaryArgs& a) {
  return {"rotary", 2 * bytes_of(a.x, a.batch * a.time * a.heads * a.dim, a.dtype)};
}

TaskCost cost_of(const AttentionArgs& a) {
  const int64_t values = a.batch * a.time * a.heads * a.dim, shared = a.batch * a.key_time() * a.kv_heads * a.dim;
  const int64_t w = a.window > 0 ? std::min(a.window, a.time) : a.time;  // of the last queries
  const int64_t of_head = a.causal ? w * (w + 1) / 2 + (a.time - w) * w : a.time * a.key_time();
  const int64_t pairs = a.batch * a.heads * of_head;
  int64_t bytes = 0;
  for (const void* data : {static_cast<const void*>(a.q.data), static_cast<const void*>(a.dq.data),
                           static_cast<const void*>(a.y), static_cast<const void*>(a.dy)})
    bytes += bytes_of(data, values, a.dtype);
  for (const HeadRows& rows : {a.k, a.v, a.dk, a.dv}) bytes += bytes_of(rows.data, shared, a.dtype);
  const double products =
      a.dq.data ? 5 : 2;  // scores and values; scores again, and the gradients of both factors of both
  // A score's exponential is worth some multiply-adds, and at the edges of mask and window tiles are not full: fitted
  // to the rates of one thread for 64 to 1,024 keys and heads of 32 to 128 (docs/benchmarks.md), within 10%.
  const double per_flop =
      1.1 + 65.0 / static_cast<double>(a.causal ? w : a.key_time()) + 30.0 / static_cast<double>(a.dim);
  return {"attention", bytes, 2.0 * products * static_cast<double>(pairs) * static_cast<double>(a.dim), per_flop};
}

TaskCost cost_of(const RecurrentArgs& a) {
  const int64_t rows = a.time * a.batch, values = rows * a.hidden, gates = rows * a.all_gates();
  int64_t bytes = bytes_of(a.weight, a.all_gates() * a.hidden, a.low) + bytes_of(a.h, values, a.low);
  for (const void* data : {a.gates, a.dgates}) bytes += bytes_of(data, gates, a.wide);
  for (const void* data : {a.of_h, a.c, a.dh, a.dof_h}) bytes += bytes_of(data, values, a.wide);
  if (a.low != a.wide) bytes += bytes_of(a.dgates_low, gates, a.low) + bytes_of(a.dof_h_low, values, a.low);
  // One step has no product: the first one forward, the last one of a gradient.
  const int64_t sums = (a.time - 1) * a.batch * a.all_gates();
  return {"recurrent", bytes, 2.0 * static_cast<double>(sums) * static_cast<double>(a.hidden)};
}

}  // namespace lockstep
