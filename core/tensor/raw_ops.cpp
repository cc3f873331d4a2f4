#include "core/tensor/raw_ops.h"

#include <cmath>

#include "core/base/state_chunk.h"
#include "core/device/graph.h"

namespace lockstep::raw {
namespace {

// Drops extents of 1 and merges neighbouring dimensions that step alike in all operands: most operations become
// one-dimensional.
void merge_dims(PointwiseArgs& a, int operands, Operand** all, const Shape& shape, const Shape* strides) {
  int dims = 0;
  int64_t sizes[Shape::kMaxRank], steps[kMaxIns + kMaxOuts][Shape::kMaxRank];
  for (int d = 0; d < shape.rank(); ++d) {
    if (shape[d] == 1) continue;
    bool merge = dims > 0;
    for (int o = 0; o < operands && merge; ++o) merge = steps[o][dims - 1] == strides[o][d] * shape[d];
    if (merge) {
      sizes[dims - 1] *= shape[d];
      for (int o = 0; o < operands; ++o) steps[o][dims - 1] = strides[o][d];
    } else {
      sizes[dims] = shape[d];
      for (int o = 0; o < operands; ++o) steps[o][dims] = strides[o][d];
      ++dims;
    }
  }
  check(dims <= kMaxDims, "an operation over more than ", kMaxDims, " irreducible dimensions: ", shape);
  a.dims = dims;
  for (int d = 0; d < dims; ++d) {
    a.sizes[d] = sizes[d];
    for (int o = 0; o < operands; ++o) all[o]->strides[d] = steps[o][d];
  }
}

}  // namespace

PointwiseArgs pointwise_args(std::initializer_list<Tensor> outs, std::initializer_list<Tensor> ins) {
  PointwiseArgs a;
  const Shape& shape = outs.begin()->shape();
  a.numel = shape.numel();
  Operand* all[kMaxIns + kMaxOuts];
  Shape strides[kMaxIns + kMaxOuts];
  int n = 0;
  // Inputs first: write() counts a version, read() checks bytes.
  for (const Tensor& t : ins) {
    Operand& o = a.in[a.ins++];
    o.data = const_cast<void*>(t.read());
    o.dtype = t.dtype();
    strides[n] = t.shape() == shape ? t.strides() : t.expand(shape).strides();
    all[n++] = &o;
  }
  for (const Tensor& t : outs) {
    check(t.shape() == shape, "outputs of one operation of shapes ", t.shape(), " and ", shape);
    Operand& o = a.out[a.outs++];
    o.data = t.write();
    o.dtype = t.dtype();
    strides[n] = t.strides();
    all[n++] = &o;
  }
  merge_dims(a, n, all, shape, strides);
  return a;
}

void pointwise(PointwiseOp op, std::initializer_list<Tensor> outs, std::initializer_list<Tensor> ins, double s0,
               double s1) {
  if (outs.begin()->numel() == 0) return;
  PointwiseArgs a = pointwise_args(outs, ins);
  a.scalars[0] = s0;
  a.scalars[1] = s1;
  current_stream().enqueue([op, a](Parallel& p) { kernels(p).pointwise(p, op, a); },
                           counts_costs() ? cost_of(op, a) : TaskCost{});
}

void row(RowOp op, const RowArgs& args) {
  if (args.rows == 0) return;
  current_stream().enqueue([op, args](Parallel& p) { kernels(p).row(p, op, args); },
                           counts_costs() ? cost_of(op, args) : TaskCost{});
}

RowArgs rows_along_last(const Tensor& t) {
  RowArgs r;
  r.cols = t.dim(-1);
  r.rows = r.cols ? t.numel() / r.cols : 0;
  return r;
}

void check_indices(const Tensor& index, int64_t end, IndexCheckArgs::Use use, int64_t ignored) {
  IndexCheckArgs a;
  a.index = static_cast<const int32_t*>(index.read());
  a.count = index.numel(), a.end = end, a.ignored = ignored;
  a.use = use;
  launch([](Parallel& p, const IndexCheckArgs& args) { kernels(p).check_indices(p, args); }, a);
}

Tensor samples_of(std::string_view what, const Shape& shape) {
  const auto& samples = context().random.samples;
  const int64_t count = samples ? static_cast<int64_t>(samples->size()) : 0;
  check(shape.rank() > 0 && count > 0 && count == shape[0], what, " of ", shape, ": its first dimension must be the ",
        count, " samples of the micro-batch (WithRandom)");
  if (context().recording) not_in_a_graph(str(what, ", which draws other numbers at every step,").c_str());
  return Tensor::of(*samples, {count});
}

RowOperand rows_of(const Tensor& t, int64_t cols) {
  check(t.is_contiguous(), "rows of ", t, ", which is not contiguous");
  return {const_cast<void*>(t.read()), t.dtype(), cols};
}
RowOperand one_per_row(const Tensor& t) { return {const_cast<void*>(t.read()), t.dtype(), t.numel() == 1 ? 0 : 1}; }
RowOperand same_row(const Tensor& t) { return {const_cast<void*>(t.read()), t.dtype(), 0}; }
RowOperand write_rows(const Tensor& t, int64_t cols) {
  check(t.is_contiguous(), "rows of ", t, ", which is not contiguous");
  return {t.write(), t.dtype(), cols};
}
RowOperand write_one_per_row(const Tensor& t) { return {t.write(), t.dtype(), 1}; }

void fill(const Tensor& out, double value) { pointwise(PointwiseOp::kFill, {out}, {}, value); }
namespace {
void decode_weight(const Tensor& out, const Tensor& in) {
  check(in.numel() == out.numel() && in.is_contiguous() && out.is_contiguous() && is_floating(out.dtype()) &&
            out.dtype() != DType::kFloat64,
        "codes ", in, " cannot become ", out);
  WeightCodesArgs a;
  a.count = in.numel();
  if (a.count == 0) return;
  a.coding = in.dtype(), a.codes = in.read();
  a.values_dtype = out.dtype(), a.values = out.write();
  launch([](Parallel& p, const WeightCodesArgs& args) { kernels(p).decode_weight(p, args); }, a);
}
}  // namespace

void copy(const Tensor& out, const Tensor& in) {
  if (is_coded(in.dtype())) {
    if (out.dtype() == in.dtype()) return copy(out.as_bytes(), in.as_bytes());
    return decode_weight(out, in);
  }
  check(!is_coded(out.dtype()), "a copy from ", in, " into ", out, ", whose codes need the whole tensor");
  if (current_stream().device_queue() && out.numel() > 0) {
    const Device here = current_device();
    if (out.dtype() == in.dtype() && out.shape() == in.shape() && out.is_contiguous() && in.is_contiguous()) {
      const void* from = in.read();
      void* to = out.write();
      return current_stream().enqueue(
          [to, from, bytes = out.bytes()](Parallel& p) { static_cast<DeviceQueue&>(p).copy(to, from, bytes); },
          {"copy", 2 * out.bytes()});
    }
    // Kernels do not reach plain host memory: whole and as it is, it travels.
    if (in.device().type == DeviceType::kCpu) return copy(out, to_device(in, here));
    if (out.device().type == DeviceType::kCpu) {
      Tensor ready = Tensor::empty(out.shape(), out.dtype());
      copy(ready, in);
      check(out.is_contiguous(), "a copy from ", in, " into ", out, ", which is not contiguous");
      return copy(out, ready);
    }
  }
  check(current_stream().device_queue() ||
            (out.device().type != DeviceType::kCuda && in.device().type != DeviceType::kCuda),
        "a copy from ", in, " to ", out, " on a thread whose stream is no GPU's");
  // Whole numbers of 64 bits would pass through fp64, which holds 53: between themselves they travel as patterns.
  if (out.dtype() == DType::kInt64 && in.dtype() == DType::kInt64)
    return pointwise(PointwiseOp::kCopy, {out.as(DType::kFloat64)}, {in.as(DType::kFloat64)});
  pointwise(PointwiseOp::kCopy, {out}, {in});
}
void add(const Tensor& out, const Tensor& a, const Tensor& b) { pointwise(PointwiseOp::kAdd, {out}, {a, b}); }

Tensor contiguous(const Tensor& t) {
  if (t.is_contiguous()) return t;
  Tensor out = Tensor::empty(t.shape(), t.dtype());
  copy(out, t);
  return out;
}

Tensor cast(const Tensor& t, DType dtype) {
  if (t.dtype() == dtype) return t;
  Tensor out = Tensor::empty(t.shape(), dtype);
  copy(out, t);
  return out;
}

Tensor to_device(const Tensor& t, Device device) {
  if (t.device() == device) return contiguous(t);
  check(t.is_contiguous() || t.device().type != DeviceType::kCpu, "to_device: ", t, " is not contiguous");
  Tensor out = Tensor::unallocated(t.shape(), t.dtype(), device);
  out.allocate();
  copy(out, contiguous(t));
  return out;
}

Tensor to_host(const Tensor& t) {
  return to_device(t, t.device().in_host_memory() ? t.device() : host_memory_of(t.device()));
}

namespace {
BlockCodesArgs block_codes(const Tensor& values, const Tensor& codes, const Tensor& scales) {
  check(codes.numel() == values.numel() && scales.numel() == (codes.numel() + kStateChunk - 1) / kStateChunk &&
            codes.dtype() == DType::kUInt8 && values.dtype() == DType::kFloat32,
        "block codes: ", values, ", codes ", codes, ", scales ", scales);
  return {.count = values.numel()};
}
}  // namespace
void encode_blocks(const Tensor& codes, const Tensor& scales, const Tensor& values) {
  BlockCodesArgs a = block_codes(values, codes, scales);
  if (a.count == 0) return;
  a.values = static_cast<float*>(const_cast<void*>(values.read()));
  a.codes = static_cast<uint8_t*>(codes.write());
  a.scales = static_cast<float*>(scales.write());
  launch([](Parallel& p, const BlockCodesArgs& args) { kernels(p).encode_blocks(p, args); }, a);
}
void decode_blocks(const Tensor& values, const Tensor& codes, const Tensor& scales) {
  BlockCodesArgs a = block_codes(values, codes, scales);
  if (a.count == 0) return;
  a.values = static_cast<float*>(values.write());
  a.codes = static_cast<uint8_t*>(const_cast<void*>(codes.read()));
  a.scales = static_cast<float*>(const_cast<void*>(scales.read()));
  launch([](Parallel& p, const BlockCodesArgs& args) { kernels(p).decode_blocks(p, args); }, a);
}

void sum_dims(const Tensor& out, const Tensor& in, const std::vector<int>& dims, bool accumulate) {
  // One run of neighbouring dimensions at a time, last first: [outer, reduced, inner] -> [outer, inner].
  Tensor now = contiguous(in);
  size_t left = dims.size();
  if (left == 0) return accumulate ? add(out, out, now.reshape(out.shape())) : copy(out, now.reshape(out.shape()));
  while (left > 0) {
    int last = dims[left - 1], first = last;
    --left;
    while (left > 0 && dims[left - 1] == first - 1) first = dims[--left];
    ColumnArgs a;
    for (int d = 0; d < first; ++d) a.batch *= now.shape()[d];
    a.rows = 1;
    for (int d = first; d <= last; ++d) a.rows *= now.shape()[d];
    a.cols = 1;
    for (int d = last + 1; d < now.rank(); ++d) a.cols *= now.shape()[d];
    Shape reduced = now.shape();
    for (int d = first; d <= last; ++d) reduced[d] = 1;
    const bool final = left == 0;
    // Rounded once, at the end.
    Tensor target = final ? out : Tensor::empty(reduced, in.dtype() == DType::kFloat64 ? in.dtype() : DType::kFloat32);
    check(target.is_contiguous() && target.numel() == a.batch * a.cols, "sum of ", in, " into ", out);
    if (a.cols == 1 && !(final && accumulate)) {
      RowArgs r;
      r.rows = a.batch;
      r.cols = a.rows;
      r[ReduceRows::kX] = rows_of(now, a.rows);
      r[ReduceRows::kResult] = write_one_per_row(target);
      row(RowOp::kSum, r);
    } else {
      a.in = now.read();
      a.in_dtype = now.dtype();
      a.accumulate = final && accumulate;
      a.out = target.write();
      a.out_dtype = target.dtype();
      launch([](Parallel& p, const ColumnArgs& c) { kernels(p).column_sum(p, c); }, a);
    }
    now = target.reshape(reduced);
  }
}

void sum_columns_as_rows(const Tensor& out, const Tensor& in) {
  check(in.rank() == 2 && in.is_contiguous() && out.is_contiguous() && out.numel() == in.dim(1), "sum of ", in,
        " into ", out);
  ColumnArgs a;
  a.rows = in.dim(0), a.cols = in.dim(1), a.in_lanes = true;
  a.in = in.read(), a.in_dtype = in.dtype();
  a.out = out.write(), a.out_dtype = out.dtype();
  launch([](Parallel& p, const ColumnArgs& c) { kernels(p).column_sum(p, c); }, a);
}

Tensor sum_to(const Tensor& in, const Shape& shape, DType dtype) {
  if (in.shape() == shape) return in;
  const int extra = in.rank() - shape.rank();
  std::vector<int> dims;
  for (int d = 0; d < in.rank(); ++d)
    if (d < extra || (shape[d - extra] == 1 && in.shape()[d] != 1)) dims.push_back(d);
  Tensor out = Tensor::empty(shape, dtype);
  sum_dims(out, in, dims);
  return out;
}

namespace {

GemmArgs gemm_args(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias) {
  auto three = [](const Tensor& t) { return t.rank() == 3 ? t : t.expand(Shape{1, t.dim(0), t.dim(1)}); };
  const Tensor A = three(a), B = three(b), C = three(c);
  GemmArgs g;
  g.batch = C.dim(0), g.m = C.dim(1), g.n = C.dim(2), g.k = A.dim(2);
  check(A.dim(1) == g.m && B.dim(1) == g.k && B.dim(2) == g.n && (A.dim(0) == g.batch || A.dim(0) == 1) &&
            (B.dim(0) == g.batch || B.dim(0) == 1),
        "matrix product: ", a, " by ", b, " into ", c);
  check(C.strides()[2] == 1 || g.n == 1, "matrix product into ", c, ", whose rows are not contiguous");
  auto matrix = [&](const Tensor& t, void* data) {
    return Matrix{data, t.dtype(), t.strides()[1], t.strides()[2], t.dim(0) == 1 ? 0 : t.strides()[0]};
  };
  g.a = matrix(A, const_cast<void*>(A.read()));
  g.b = matrix(B, const_cast<void*>(B.read()));
  if (bias) {
    check(bias.numel() == g.n && bias.is_contiguous(), "matrix product: bias ", bias, " for ", c);
    g.bias = bias.read();
    g.bias_dtype = bias.dtype();
  }
  g.c = matrix(C, C.write());
  g.c.col_stride = 1;
  return g;
}

thread_local std::function<void(const Tensor&)> product_observer;

void launch_gemm(const GemmArgs& g) {
  launch([](Parallel& p, const GemmArgs& args) { kernels(p).gemm(p, args); }, g);
}

void check_epilogue(const Tensor& c, const Tensor& aux) {
  check(
      c.rank() == 2 && c.shape() == aux.shape() && c.dtype() == aux.dtype() && c.is_contiguous() && aux.is_contiguous(),
      "matrix product with gelu: ", c, " beside ", aux);
}

}  // namespace

void set_product_observer(std::function<void(const Tensor&)> observer) { product_observer = std::move(observer); }
bool has_product_observer() { return static_cast<bool>(product_observer); }
void observe_product(const Tensor& result) { product_observer(result); }

void gemm(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& bias, bool accumulate) {
  GemmArgs g = gemm_args(c, a, b, bias);
  g.accumulate = accumulate;
  launch_gemm(g);
  if (product_observer) product_observer(c);
}

void gemm_gelu(const Tensor& y, const Tensor& pre, const Tensor& a, const Tensor& b, const Tensor& bias) {
  check_epilogue(y, pre);
  GemmArgs g = gemm_args(y, a, b, bias);
  g.epilogue = Epilogue::kGelu;
  g.aux = pre.write();
  launch_gemm(g);
  if (product_observer) product_observer(y);
}

void gemm_gelu_backward(const Tensor& c, const Tensor& a, const Tensor& b, const Tensor& pre) {
  check_epilogue(c, pre);
  GemmArgs g = gemm_args(c, a, b, {});
  g.epilogue = Epilogue::kGeluBackward;
  g.aux = const_cast<void*>(pre.read());
  launch_gemm(g);
  if (product_observer) product_observer(c);
}

void linear_gradients(const GradientTarget& weight, const GradientTarget& bias, const Tensor& g, const Tensor& x) {
  check(g.is_contiguous() && x.is_contiguous(), "gradients of a linear layer from ", g, " and ", x);
  const bool one = g.dim(1) == 1;  // a sum of one column, which sum_dims may take as a row
  GemmArgs args = gemm_args(weight.out, g.transpose(0, 1), x, {});
  args.accumulate = weight.accumulate;
  if (!one) {
    check(bias.out.is_contiguous() && bias.out.numel() == args.m, "sum of ", g, " into ", bias.out);
    args.bias_gradient = bias.out.write();
    args.bias_gradient_dtype = bias.out.dtype();
    args.accumulate_bias_gradient = bias.accumulate;
  }
  launch_gemm(args);
  if (product_observer) product_observer(weight.out);
  if (one) sum_dims(bias.out, g, {0}, bias.accumulate);
}

bool all_finite(const Tensor& t) {
  if (!is_floating(t.dtype()) || t.numel() == 0) return true;
  // In rows, so that all of a GPU takes part.
  constexpr int64_t kCols = 1 << 16;
  const Tensor dense = contiguous(t.detach()).flatten();
  const int64_t whole = t.numel() / kCols, rest = t.numel() % kCols;
  const Tensor norms = Tensor::empty({whole + (rest > 0)}, DType::kFloat64);
  auto measure = [&](int64_t first, int64_t rows, int64_t cols) {
    RowArgs r;
    r.rows = rows;
    r.cols = cols;
    r[ReduceRows::kX] = rows_of(dense.slice(0, first * kCols, first * kCols + rows * cols), cols);
    r[ReduceRows::kResult] = write_one_per_row(norms.slice(0, first, first + rows));
    row(RowOp::kNormSquared, r);
  };
  if (whole > 0) measure(0, whole, kCols);
  if (rest > 0) measure(whole, 1, rest);
  for (double norm : norms.to_vector())
    if (!std::isfinite(norm)) return false;
  return true;
}

}  // namespace lockstep::raw
