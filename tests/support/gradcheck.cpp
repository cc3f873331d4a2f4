#include "tests/support/gradcheck.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/autograd/node.h"
#include "core/base/philox.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep::testing {

Tensor random_tensor(const Shape& shape, uint64_t seed, double low, double high, DType dtype) {
  std::vector<double> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    Philox4 r = philox(seed, i, 7);
    double u = (r.v[0] + r.v[1] * 0x1p-32) * 0x1p-32;
    values[i] = low + (high - low) * u;
  }
  return raw::cast(Tensor::of(values, shape), dtype);
}

namespace {

struct Run {
  double total;
  DType dtype;  // of the result
  std::vector<std::vector<double>> grads;
  std::vector<DType> grad_dtypes;
  std::vector<double> out;
};

Run run(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs,
        bool with_gradient) {
  std::vector<Tensor> leaves;
  for (const Tensor& t : inputs) {
    Tensor leaf = t.detach();
    if (is_floating(t.dtype()) && with_gradient) require_grad(leaf);
    leaves.push_back(leaf);
  }
  Tensor y = f(leaves);
  Tensor w = random_tensor(y.shape(), 99, 0.5, 1.5, y.dtype());
  Tensor total = sum(cast(mul(y, w), DType::kFloat64));
  Run r{total.item(), y.dtype(), {}, {}, y.to_vector()};
  if (with_gradient) {
    backward(total);
    for (const Tensor& leaf : leaves) {
      Tensor g = grad_of(leaf);
      r.grads.push_back(g ? g.to_vector() : std::vector<double>());
      if (g) r.grad_dtypes.push_back(g.dtype());
    }
  }
  return r;
}

}  // namespace

void gradcheck(const std::function<Tensor(const std::vector<Tensor>&)>& f, std::vector<Tensor> inputs,
               double tolerance) {
  const Run analytic = run(f, inputs, true);
  for (size_t k = 0; k < inputs.size(); ++k) {
    if (inputs[k].dtype() != DType::kFloat64) continue;
    ASSERT_FALSE(analytic.grads[k].empty()) << "input " << k << " got no gradient";
    double* values = inputs[k].mutable_values<double>();
    for (int64_t i = 0; i < inputs[k].numel(); ++i) {
      const double before = values[i], h = 1e-6;
      values[i] = before + h;
      const double up = run(f, inputs, false).total;
      values[i] = before - h;
      const double down = run(f, inputs, false).total;
      values[i] = before;
      const double numeric = (up - down) / (2 * h), exact = analytic.grads[k][static_cast<size_t>(i)];
      ASSERT_NEAR(exact, numeric, tolerance * (1 + std::abs(numeric))) << "input " << k << ", element " << i;
    }
  }
}

void each_dtype(const std::function<Tensor(const std::vector<Tensor>&)>& f, const std::vector<Tensor>& inputs,
                double scale) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    std::vector<Tensor> low, wide;
    for (const Tensor& t : inputs) {
      low.push_back(is_floating(t.dtype()) ? raw::cast(t, dtype) : t);
      wide.push_back(is_floating(t.dtype()) ? raw::cast(low.back(), DType::kFloat64) : t);
    }
    const Run a = run(f, low, true), b = run(f, wide, true);
    const double eps = scale * (dtype == DType::kFloat32 ? 2e-6 : dtype == DType::kBFloat16 ? 0.02 : 0.003);
    ASSERT_EQ(a.out.size(), b.out.size());
    ASSERT_TRUE(a.dtype == dtype || (a.dtype == DType::kFloat32 && a.out.size() == 1))
        << "the result has its first input's type, a loss is fp32; not " << to_text(a.dtype);
    for (DType g : a.grad_dtypes) ASSERT_EQ(g, DType::kFloat32) << "of a leaf in " << to_text(dtype);
    for (size_t i = 0; i < a.out.size(); ++i)
      ASSERT_NEAR(a.out[i], b.out[i], eps * (1 + std::abs(b.out[i]))) << "value " << i << " in " << to_text(dtype);
    for (size_t k = 0; k < inputs.size(); ++k)
      for (size_t i = 0; i < b.grads[k].size(); ++i)
        ASSERT_NEAR(a.grads[k][i], b.grads[k][i], 3 * eps * (1 + std::abs(b.grads[k][i])))
            << "gradient " << i << " of input " << k << " in " << to_text(dtype);
  }
}

}  // namespace lockstep::testing
