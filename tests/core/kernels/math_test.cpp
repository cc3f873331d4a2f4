// exp, log, tanh, sigmoid, softplus, powers, both GELUs and their slopes, sine and cosine: error in units in the last
// place (ulp) against fp64, over dense ranges, at every level.
#include "core/kernels/math.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep::math_test {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

std::vector<IsaLevel> levels() {
  std::vector<IsaLevel> out;
  for (IsaLevel level : kIsaLevels)
    if (has_isa_level(level)) out.push_back(level);
  return out;
}

std::vector<float> apply(IsaLevel level, PointwiseOp op, const std::vector<float>& x, double exponent = 1) {
  const int64_t n = static_cast<int64_t>(x.size());
  const Tensor in = Tensor::of(x, {n}), ones = Tensor::full({n}, 1), out = Tensor::empty({n});
  ThreadPool pool(1);
  PointwiseArgs a = op == PointwiseOp::kGeluBackward || op == PointwiseOp::kGeluErfBackward
                        ? raw::pointwise_args({out}, {ones, in})
                        : raw::pointwise_args({out}, {in});
  a.scalars[0] = exponent, a.scalars[1] = 1;
  kernels(level).pointwise(pool, op, a);
  return out.to_vector<float>();
}

std::vector<float> even_steps(double low, double high, int64_t n) {
  std::vector<float> x;
  for (int64_t i = 0; i < n; ++i)
    x.push_back(static_cast<float>(low + (high - low) * static_cast<double>(i) / static_cast<double>(n - 1)));
  return x;
}

// Every `stride`-th fp32 number in [low, high], both positive.
std::vector<float> every(float low, float high, uint32_t stride) {
  std::vector<float> x;
  for (uint32_t u = bits_of(low); u <= bits_of(high); u += stride) x.push_back(float_of(u));
  return x;
}

// Distance in steps of the fp32 grid at the true value.
double ulps(float got, double exact) {
  const double step = std::ldexp(1.0, std::max(std::ilogb(exact), -126) - 23);
  return std::abs(static_cast<double>(got) - exact) / step;
}

double gelu_slope(double x) { return gelu_gradient(x); }
double gelu_erf(double x) { return x * normal_cdf(x); }
double gelu_erf_slope(double x) { return gelu_erf_gradient(x); }
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double softplus(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }

struct Function {
  const char* name;
  PointwiseOp op;
  double (*exact)(double);
  std::vector<float> at;
  double most;          // ulp
  double floor = 0;     // absolute error that always passes: where the function goes through 0 or fades out
  double exponent = 1;  // of kPower
};

TEST(Math, ErrorsStayWithinTheirBounds) {
  auto both = [](std::vector<float> x) {
    const size_t n = x.size();
    for (size_t i = 0; i < n; ++i) x.push_back(-x[i]);
    return x;
  };
  const Function all[] = {
      {"exp", PointwiseOp::kExp, [](double x) { return std::exp(x); }, even_steps(-87.33, 88.72, 400001), 1.0},
      {"exp near 0", PointwiseOp::kExp, [](double x) { return std::exp(x); }, both(every(1e-10f, 1.0f, 1009)), 1.0},
      {"log", PointwiseOp::kLog, [](double x) { return std::log(x); }, every(1.17549435e-38f, 3.4e38f, 5003), 1.0},
      {"log near 1", PointwiseOp::kLog, [](double x) { return std::log(x); }, every(0.9f, 1.1f, 11), 1.0},
      {"tanh", PointwiseOp::kTanh, [](double x) { return std::tanh(x); }, both(every(1e-6f, 12.0f, 401)), 2.0},
      {"sqrt", PointwiseOp::kSqrt, [](double x) { return std::sqrt(x); }, every(1.2e-38f, 3.4e38f, 9001), 0.5},
      // Left of 0 the rounding of the exponent is amplified, in values that fade out: there the absolute error counts.
      {"gelu", PointwiseOp::kGelu, [](double x) { return gelu_of(x); }, even_steps(-1, 30, 200001), 6.0},
      {"gelu, left", PointwiseOp::kGelu, [](double x) { return gelu_of(x); }, even_steps(-40, -1, 200001), 6.0, 1e-7},
      // x s (1 - s) du cancels in 1 - s: about 34 roundings near x = 5.
      {"gelu slope", PointwiseOp::kGeluBackward, gelu_slope, even_steps(-30, 30, 200001), 6.0, 3e-6},
      {"gelu by erf", PointwiseOp::kGeluErf, gelu_erf, even_steps(-1, 30, 200001), 6.0},
      {"gelu by erf, left", PointwiseOp::kGeluErf, gelu_erf, even_steps(-40, -1, 200001), 6.0, 1e-7},
      {"gelu by erf, slope", PointwiseOp::kGeluErfBackward, gelu_erf_slope, even_steps(-30, 30, 200001), 6.0, 3e-7},
      {"sigmoid", PointwiseOp::kSigmoid, sigmoid, even_steps(-87, 30, 200001), 3.0},
      {"softplus", PointwiseOp::kSoftplus, softplus, even_steps(-87, 100, 200001), 3.0},
      {"cube", PointwiseOp::kPower, [](double x) { return x * x * x; }, both(every(1e-12f, 1e12f, 9001)), 2.0, 0, 3},
      {"inverse square", PointwiseOp::kPower, [](double x) { return 1 / (x * x); }, both(every(1e-18f, 1e18f, 9001)),
       2.0, 0, -2},
      // The error of the logarithm times its size.
      {"power 0.7", PointwiseOp::kPower, [](double x) { return std::pow(x, 0.7); }, every(1e-4f, 1e4f, 5003), 12.0, 0,
       0.7},
      {"power 100", PointwiseOp::kPower, [](double x) { return std::pow(x, 100); }, both(every(0.9f, 1.1f, 11)), 20.0,
       0, 100},
  };
  for (const Function& f : all)
    for (IsaLevel level : levels()) {
      const std::vector<float> y = apply(level, f.op, f.at, f.exponent);
      double worst = 0;
      float where = 0;
      for (size_t i = 0; i < y.size(); ++i) {
        const double exact = f.exact(static_cast<double>(f.at[i]));
        ASSERT_FALSE(std::isnan(y[i])) << f.name << "(" << f.at[i] << ")";
        if (std::abs(static_cast<double>(y[i]) - exact) <= f.floor || exact == static_cast<double>(y[i])) continue;
        const double u = ulps(y[i], exact);
        if (u > worst) worst = u, where = f.at[i];
      }
      EXPECT_LE(worst, f.most) << f.name << " at " << where << ", level " << kernels(level).isa;
      RecordProperty(str(f.name, " ", kernels(level).isa), str(worst));
    }
}

TEST(Math, SineAndCosineAreExactToFp64) {
  double worst = 0;
  for (int64_t i = -200000; i <= 200000; ++i)
    for (double step : {1e-5, 0.0123, 5.0, 1000.7}) {
      const double x = static_cast<double>(i) * step;
      const SinCos got = sin_cos_of(x);
      worst = std::max({worst, std::abs(got.sin - std::sin(x)), std::abs(got.cos - std::cos(x))});
    }
  EXPECT_LT(worst, 3e-16);
  EXPECT_EQ(sin_cos_of(0).sin, 0);
  EXPECT_EQ(sin_cos_of(0).cos, 1);
}

TEST(Math, SpecialValuesAreThoseOfTheFunctions) {
  for (IsaLevel level : levels()) {
    const std::vector<float> x{0.0f, -0.0f, kInf, -kInf, kNan, 1e30f, -1e30f};
    auto expect = [&](PointwiseOp op, const std::vector<float>& wanted) {
      const std::vector<float> y = apply(level, op, x);
      for (size_t i = 0; i < x.size(); ++i) {
        if (wanted[i] != wanted[i])
          EXPECT_TRUE(y[i] != y[i]) << "operation " << static_cast<int>(op) << " of " << x[i] << " gave " << y[i];
        else EXPECT_EQ(y[i], wanted[i]) << "operation " << static_cast<int>(op) << " of " << x[i];
      }
    };
    expect(PointwiseOp::kExp, {1, 1, kInf, 0, kNan, kInf, 0});
    expect(PointwiseOp::kTanh, {0, 0, 1, -1, kNan, 1, -1});
    expect(PointwiseOp::kRelu, {0, 0, kInf, 0, kNan, 1e30f, 0});
    expect(PointwiseOp::kSigmoid, {0.5, 0.5, 1, 0, kNan, 1, 0});
    expect(PointwiseOp::kSoftplus, {std::log(2.0f), std::log(2.0f), kInf, 0, kNan, 1e30f, 0});
    expect(PointwiseOp::kSqrt, {0, 0, kInf, kNan, kNan, std::sqrt(1e30f), kNan});
    const std::vector<float> log_of_x = apply(level, PointwiseOp::kLog, {0.0f, -1.0f, kInf, kNan, 1.0f, -kInf});
    EXPECT_EQ(log_of_x[0], -kInf);
    EXPECT_TRUE(log_of_x[1] != log_of_x[1]);
    EXPECT_EQ(log_of_x[2], kInf);
    EXPECT_TRUE(log_of_x[3] != log_of_x[3]);
    EXPECT_EQ(log_of_x[4], 0);
    EXPECT_TRUE(log_of_x[5] != log_of_x[5]);
    EXPECT_EQ(apply(level, PointwiseOp::kGelu, {1e30f, 100.0f, -100.0f}), (std::vector<float>{1e30f, 100.0f, -0.0f}));
  }
}

TEST(Math, AreMonotoneWhereTheFunctionsAre) {
  for (IsaLevel level : levels())
    for (auto [op, x] : {std::pair{PointwiseOp::kExp, even_steps(-20, 20, 100001)},
                         std::pair{PointwiseOp::kTanh, even_steps(-9, 9, 100001)},
                         std::pair{PointwiseOp::kLog, even_steps(0.01, 50, 100001)}}) {
      const std::vector<float> y = apply(level, op, x);
      for (size_t i = 1; i < y.size(); ++i)
        ASSERT_GE(y[i], y[i - 1] - 2e-7f * std::abs(y[i])) << static_cast<int>(op) << " at " << x[i];
    }
}

}  // namespace
}  // namespace lockstep::math_test
