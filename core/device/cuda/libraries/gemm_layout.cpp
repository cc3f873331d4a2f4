#include "core/device/cuda/libraries/gemm_layout.h"

#include <algorithm>
#include <initializer_list>

#include "core/base/error.h"
#include "core/kernels/gemm/epilogue.h"

namespace lockstep::cuda {
namespace {

constexpr int64_t kAlignment = 16;  // of a vector load

bool is_aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % kAlignment == 0; }

// The type in which the library multiplies: the operands' own where it is one, else the one that holds both exactly.
DType product_type(const GemmArgs& g) {
  for (DType t : {g.a.dtype, g.b.dtype, g.c.dtype}) check(is_floating(t), "matrix product with an operand of type ", t);
  if (g.a.dtype == DType::kFloat64) return DType::kFloat64;
  return g.a.dtype == g.b.dtype ? g.a.dtype : DType::kFloat32;
}

// A row-major [rows, cols] matrix as column-major memory. A stride along an extent of 1 is never taken, so any will do.
// False where neither stride is 1, or rows overlap.
bool as_column_major(const Matrix& m, int64_t rows, int64_t cols, int64_t batch, ColumnMajor& out) {
  out = {m.data, m.dtype, false, cols, rows, 0, batch > 1 ? m.batch_stride : 0, kAlignment};
  const int64_t step = out.batch_stride * size_of(m.dtype);
  while (step % out.alignment != 0) out.alignment /= 2;
  if ((cols == 1 || m.col_stride == 1) && (rows == 1 || m.row_stride >= cols)) {
    out.ld = rows == 1 ? cols : m.row_stride;
    return true;
  }
  if ((rows == 1 || m.row_stride == 1) && (cols == 1 || m.col_stride >= rows)) {
    out.transposed = true;
    out.rows = rows, out.cols = cols;
    out.ld = cols == 1 ? rows : m.col_stride;
    return true;
  }
  return false;
}

// Elements from the first to the last that the matrices reach.
int64_t span(const Matrix& m, int64_t batch, int64_t rows, int64_t cols) {
  return (batch - 1) * m.batch_stride + (rows - 1) * m.row_stride + (cols - 1) * m.col_stride + 1;
}

class Steps {
 public:
  Steps(Parallel& queue, const GemmArgs& g, GemmScratch scratch)
      : queue_(queue),
        whole_(g),
        g_(product_alone(g)),
        scratch_(scratch),
        type_(product_type(g)),
        wide_(type_ == DType::kFloat64) {}

  void run(GemmProduct product) {
    if (multiply(product)) return;
    const KernelTable& kernels = *queue_.device_kernels();
    passes_after_product(queue_, whole_, kernels.pointwise, kernels.column_sum);
  }

 private:
  // False where what goes beyond the product is left to do.
  bool multiply(GemmProduct product) {
    if (g_.m == 0 || g_.n == 0 || g_.batch == 0) return false;
    if (g_.k == 0) {
      without_product();
      return false;
    }
    GemmCall call;
    call.m = g_.n, call.n = g_.m, call.k = g_.k, call.batch = g_.batch;
    call.a = operand(g_.b, g_.k, g_.n, 0);
    call.b = operand(g_.a, g_.m, g_.k, 1);
    // The library adds a bias of the operands' own type; elsewhere it is added after, where that costs no rounding of a
    // 16-bit result.
    const bool wide_c = g_.c.dtype == DType::kFloat32 || wide_;
    const bool bias_inside = g_.bias && !wide_ && g_.bias_dtype == type_ && g_.c.dtype == type_;
    const bool takes_c = (g_.c.dtype == type_ || (!wide_ && g_.c.dtype == DType::kFloat32)) &&
                         (!g_.bias || bias_inside || wide_c) && as_column_major(g_.c, g_.m, g_.n, g_.batch, call.c) &&
                         !call.c.transposed;
    if (!takes_c) {
      into_sums(call, product);
      return false;
    }
    if (bias_inside) call.bias = aligned(g_.bias, g_.bias_dtype, g_.n, 3);
    call.accumulate = g_.accumulate;
    Matrix c = g_.c;
    if (!is_aligned(c.data)) {
      c.data = scratch_(2, span(c, g_.batch, g_.m, g_.n) * size_of(c.dtype));
      if (g_.accumulate) pointwise(PointwiseOp::kCopy, c, {g_.c});
    }
    call.c.data = c.data;
    const bool done = with_epilogue(call, product) || with_bias_gradient(call, product);
    if (!done) product(call);
    if (g_.bias && !bias_inside) pointwise(PointwiseOp::kAdd, g_.c, {c, bias()});
    else if (c.data != g_.c.data) pointwise(PointwiseOp::kCopy, g_.c, {c});
    return done;
  }

  // With operands of 16 bits alone: there a pass over memory costs much of what the product does, and the library's own
  // way to compute gelu stays below a rounding of the result.
  bool with_epilogue(GemmCall call, GemmProduct product) const {
    if (whole_.epilogue == Epilogue::kNone || size_of(type_) != 2 || call.c.dtype != type_ || call.c.ld % 8 != 0)
      return false;
    check(is_aligned(whole_.c.data) && is_aligned(whole_.aux), "matrix product with an epilogue into ", whole_.c.data,
          " beside ", whole_.aux, ": both must be aligned to ", kAlignment, " bytes");
    call.c.data = whole_.c.data;
    call.epilogue = whole_.epilogue;
    call.aux = whole_.aux;
    return product(call);
  }

  // The library's has C's type, and is overwritten.
  bool with_bias_gradient(GemmCall call, GemmProduct product) const {
    if (!whole_.bias_gradient || size_of(type_) != 2 || whole_.bias_gradient_dtype != call.c.dtype) return false;
    const Matrix target{whole_.bias_gradient, call.c.dtype, 0, 1, 0};
    Matrix sums = target;
    if (whole_.accumulate_bias_gradient || !is_aligned(target.data))
      sums.data = scratch_(3, g_.m * size_of(sums.dtype));
    call.bias_gradient = sums.data;
    if (!product(call)) return false;
    if (whole_.accumulate_bias_gradient) pointwise(PointwiseOp::kAdd, target, {target, sums}, 1, 1, g_.m);
    else if (sums.data != target.data) pointwise(PointwiseOp::kCopy, target, {sums}, 1, 1, g_.m);
    return true;
  }

  // One value a column of C, as a matrix.
  Matrix bias() const { return {const_cast<void*>(g_.bias), g_.bias_dtype, 0, 1, 0}; }

  void pointwise(PointwiseOp op, const Matrix& out, std::initializer_list<Matrix> ins) const {
    pointwise(op, out, ins, g_.batch, g_.m, g_.n);
  }
  void pointwise(PointwiseOp op, const Matrix& out, std::initializer_list<Matrix> ins, int64_t batch, int64_t rows,
                 int64_t cols) const {
    PointwiseArgs a;
    auto view = [&](const Matrix& m) { return Operand{m.data, m.dtype, {m.batch_stride, m.row_stride, m.col_stride}}; };
    a.dims = 3;
    a.sizes[0] = batch, a.sizes[1] = rows, a.sizes[2] = cols;
    a.numel = batch * rows * cols;
    a.outs = 1;
    a.out[0] = view(out);
    for (const Matrix& in : ins) a.in[a.ins++] = view(in);
    queue_.device_kernels()->pointwise(queue_, op, a);
  }

  // Nothing to sum: C = (C) + (bias).
  void without_product() const {
    if (g_.bias && g_.accumulate) pointwise(PointwiseOp::kAdd, g_.c, {g_.c, bias()});
    else if (g_.bias) pointwise(PointwiseOp::kCopy, g_.c, {bias()});
    else if (!g_.accumulate) pointwise(PointwiseOp::kFill, g_.c, {});
  }

  // By way of sums of their own, which are rounded once, with all that belongs to them.
  void into_sums(GemmCall& call, GemmProduct product) {
    Matrix sums{nullptr, wide_ ? DType::kFloat64 : DType::kFloat32, g_.n, 1, g_.m * g_.n};
    sums.data = scratch_(2, g_.batch * g_.m * g_.n * size_of(sums.dtype));
    as_column_major(sums, g_.m, g_.n, g_.batch, call.c);
    product(call);
    if (g_.accumulate) {
      if (g_.bias) pointwise(PointwiseOp::kAdd, sums, {sums, bias()});
      pointwise(PointwiseOp::kAdd, g_.c, {g_.c, sums});
    } else if (g_.bias) {
      pointwise(PointwiseOp::kAdd, g_.c, {sums, bias()});
    } else {
      pointwise(PointwiseOp::kCopy, g_.c, {sums});
    }
  }

  // In the layout that it has, where the library can read that: the address alone must not change the plan.
  ColumnMajor operand(const Matrix& m, int64_t rows, int64_t cols, int slot) {
    ColumnMajor out;
    const bool fits = as_column_major(m, rows, cols, g_.batch, out);
    if (fits && m.dtype == type_) {
      if (is_aligned(m.data)) return out;
      const int64_t batch = out.batch_stride == 0 ? 1 : g_.batch;
      Matrix copy = m;
      out.data = copy.data = scratch_(slot, span(m, batch, rows, cols) * size_of(type_));
      pointwise(PointwiseOp::kCopy, copy, {m}, batch, rows, cols);
      return out;
    }
    const int64_t batch = g_.batch > 1 && m.batch_stride != 0 ? g_.batch : 1;
    const int64_t unit = kAlignment / size_of(type_), ld = (cols + unit - 1) / unit * unit;
    Matrix copy{nullptr, type_, ld, 1, batch > 1 ? rows * ld : 0};
    copy.data = scratch_(slot, batch * rows * ld * size_of(type_));
    pointwise(PointwiseOp::kCopy, copy, {m}, batch, rows, cols);
    as_column_major(copy, rows, cols, g_.batch, out);
    return out;
  }

  const void* aligned(const void* values, DType dtype, int64_t n, int slot) {
    if (is_aligned(values)) return values;
    const Matrix copy{scratch_(slot, n * size_of(dtype)), dtype, 0, 1, 0};
    pointwise(PointwiseOp::kCopy, copy, {{const_cast<void*>(values), dtype, 0, 1, 0}}, 1, 1, n);
    return copy.data;
  }

  Parallel& queue_;
  const GemmArgs& whole_;
  const GemmArgs g_;  // the product alone
  GemmScratch scratch_;
  const DType type_;
  const bool wide_;
};

}  // namespace

GemmKey key_of(const GemmCall& call) {
  auto shape = [](const ColumnMajor& m) { return static_cast<int64_t>(m.dtype) | m.transposed << 8; };
  const int64_t beside = (call.bias != nullptr) | (call.bias_gradient != nullptr) << 1 | call.accumulate << 2 |
                         call.tf32 << 3 | static_cast<int64_t>(call.epilogue) << 4;
  return {call.m,    call.n,    call.k,    call.batch,          shape(call.a),       shape(call.b),       shape(call.c),
          call.a.ld, call.b.ld, call.c.ld, call.a.batch_stride, call.b.batch_stride, call.c.batch_stride, beside};
}

size_t GemmKeyHash::operator()(const GemmKey& key) const {
  uint64_t h = 0;
  for (int64_t v : key) {
    h = (h ^ static_cast<uint64_t>(v)) * 0x9E3779B97F4A7C15u;
    h ^= h >> 32;
  }
  return static_cast<size_t>(h);
}

std::string to_text(const GemmCall& call) {
  std::string out = str(call.m, " x ", call.n, " x ", call.k);
  if (call.batch > 1) {
    out += str(", batch ", call.batch, " by ", call.a.batch_stride, " ", call.b.batch_stride, " ", call.c.batch_stride);
  }
  out += str(", ", call.a.dtype, " by ", call.b.dtype, " into ", call.c.dtype, ", ", call.a.transposed ? "T" : "N",
             call.b.transposed ? "T" : "N", ", ld ", call.a.ld, " ", call.b.ld, " ", call.c.ld);
  const int aligned = std::min({call.a.alignment, call.b.alignment, call.c.alignment});
  if (aligned < kAlignment) out += str(", aligned to ", aligned);
  if (call.tf32) out += ", tf32";
  if (call.accumulate) out += ", added";
  if (call.bias) out += ", bias";
  if (call.bias_gradient) out += ", bias gradient";
  if (call.epilogue == Epilogue::kGelu) out += ", gelu";
  if (call.epilogue == Epilogue::kGeluBackward) out += ", gelu backward";
  return out;
}

void gemm_in_steps(Parallel& queue, const GemmArgs& g, GemmScratch scratch, GemmProduct product) {
  Steps(queue, g, scratch).run(product);
}

}  // namespace lockstep::cuda
