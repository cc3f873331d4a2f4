// Pointwise operations: their arguments, and the tables that say what is known of each. A new one is a value of
// PointwiseOp, a row in the tables and a functor in pointwise.cpp; tests take what they run from the tables.
// Plain values that a GPU launch can copy; memory belongs to the caller.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace lockstep {

constexpr int kMaxDims = 6;  // after neighbouring dimensions that step alike have been merged
constexpr int kMaxIns = 7;
constexpr int kMaxOuts = 5;

struct Operand {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t strides[kMaxDims] = {};  // in elements; 0 broadcasts
};

// out[j][i] = f(in[0][i], ...) for every i of `sizes`, row-major.
struct PointwiseArgs {
  int64_t numel = 0;
  int dims = 0;
  int64_t sizes[kMaxDims] = {};
  int outs = 0, ins = 0;
  Operand out[kMaxOuts];
  Operand in[kMaxIns];
  double scalars[8] = {};
  const float* control = nullptr;  // values that another kernel computed (optimizer: learning rate, clip scale, skip)
};

// s0 and s1 are the scalars, g the gradient of y.
enum class PointwiseOp : uint8_t {
  kCopy,         // y = x, with conversion
  kFill,         // y = s0
  kAdd,          // y = a + b
  kSub,          // y = a - b
  kMul,          // y = a * b
  kDiv,          // y = a / b
  kDivBackward,  // y = -g * a / b^2           (g, a, b)
  kAddScaled,    // y = a + s0 * b
  kAffine,       // y = s0 * x + s1
  kExp,
  kLog,
  kSqrt,
  kSqrtBackward,  // g / (2 y)                  (g, y)
  kTanh,
  kTanhBackward,  // g * (1 - y^2)              (g, y)
  kRelu,
  kReluBackward,     // x > 0 ? g : 0              (g, x)
  kGelu,             // tanh form
  kGeluBackward,     // (g, x)
  kSilu,             // x * sigmoid(x)
  kSiluBackward,     // (g, x)
  kSiluMul,          // silu(a) * b
  kSiluMulBackward,  // g * b * silu'(a): the gradient of a  (g, a, b)
  kSquare,
  kSigmoid,
  kSigmoidBackward,   // g * y * (1 - y)            (g, y)
  kSoftplus,          // log(1 + e^x)
  kSoftplusBackward,  // g * sigmoid(x)             (g, x)
  kGeluErf,           // x * the normal distribution function of x
  kGeluErfBackward,   // (g, x)
  kByParts,           // a where x > 0, s0 * a where x < 0, else s1 * a  (a, x)
  kClamp,             // the value in [s0, s1] that is nearest to x
  kPower,             // s1 * x^s0
  kMaximum,           // the larger of a and b where s0 is 1, the smaller where it is -1; NaN if either is
  kCompare,           // 1 where a and b relate as s0, a Comparison, says; else 0
  kWhere,             // a where c is not 0, else b  (c, a, b)
  kSoftCap,           // s0 * tanh(s1 * x), s1 = 1 / s0
  kSoftCapBackward,   // g * (1 - (s1 * y)^2)      (g, y)
};

// The relations for which it holds, as a sum: less 1, equal 2, greater 4, unordered (either is NaN) 8.
enum class Comparison : uint8_t {
  kLess = 1,
  kEqual = 2,
  kLessEqual = 3,
  kGreater = 4,
  kGreaterEqual = 6,
  kNotEqual = 13
};

struct PointwiseInfo {
  PointwiseOp op;
  const char* name;
  int ins;
  // 0: equal bits at every CPU instruction-set level. Else levels with fused multiply-add agree, and the generic one
  // differs by at most so many units in the last place, of fp32 (tests/core/kernels/levels_test.cpp).
  double ulps;
};
inline constexpr PointwiseInfo kPointwiseOps[] = {
    {PointwiseOp::kCopy, "copy", 1, 0},
    {PointwiseOp::kFill, "fill", 0, 0},
    {PointwiseOp::kAdd, "add", 2, 0},
    {PointwiseOp::kSub, "sub", 2, 0},
    {PointwiseOp::kMul, "mul", 2, 0},
    {PointwiseOp::kDiv, "div", 2, 0},
    {PointwiseOp::kDivBackward, "div backward", 3, 0},
    {PointwiseOp::kAddScaled, "add scaled", 2, 2},
    {PointwiseOp::kAffine, "affine", 1, 0},
    {PointwiseOp::kExp, "exp", 1, 2},
    {PointwiseOp::kLog, "log", 1, 2},
    {PointwiseOp::kSqrt, "sqrt", 1, 0},
    {PointwiseOp::kSqrtBackward, "sqrt backward", 2, 0},
    {PointwiseOp::kTanh, "tanh", 1, 4},
    {PointwiseOp::kTanhBackward, "tanh backward", 2, 0},
    {PointwiseOp::kRelu, "relu", 1, 0},
    {PointwiseOp::kReluBackward, "relu backward", 2, 0},
    {PointwiseOp::kGelu, "gelu", 1, 8},
    {PointwiseOp::kGeluBackward, "gelu backward", 2, 8},
    {PointwiseOp::kSilu, "silu", 1, 8},
    {PointwiseOp::kSiluBackward, "silu backward", 2, 8},
    {PointwiseOp::kSiluMul, "silu_mul", 2, 8},
    {PointwiseOp::kSiluMulBackward, "silu_mul backward", 3, 8},
    {PointwiseOp::kSquare, "square", 1, 0},
    {PointwiseOp::kSigmoid, "sigmoid", 1, 4},
    {PointwiseOp::kSigmoidBackward, "sigmoid backward", 2, 0},
    {PointwiseOp::kSoftplus, "softplus", 1, 8},
    {PointwiseOp::kSoftplusBackward, "softplus backward", 2, 4},
    {PointwiseOp::kGeluErf, "gelu_erf", 1, 8},
    {PointwiseOp::kGeluErfBackward, "gelu_erf backward", 2, 8},
    {PointwiseOp::kByParts, "by parts", 2, 0},
    {PointwiseOp::kClamp, "clamp", 1, 0},
    {PointwiseOp::kPower, "power", 1, 8},
    {PointwiseOp::kMaximum, "maximum", 2, 0},
    {PointwiseOp::kCompare, "compare", 2, 0},
    {PointwiseOp::kWhere, "where", 3, 0},
    {PointwiseOp::kSoftCap, "soft_cap", 1, 4},
    {PointwiseOp::kSoftCapBackward, "soft_cap backward", 2, 0},
};

// Differentiable functions of one input: y = forward(x), and the gradient of x is backward(g, what was saved).
struct UnaryFunction {
  enum class Saves : uint8_t { kInput, kResult };
  PointwiseOp forward, backward;
  const char* name;
  Saves saves;
  double low, high;  // inputs on which tests compare with central differences
};
inline constexpr UnaryFunction kUnaryFunctions[] = {
    {PointwiseOp::kExp, PointwiseOp::kMul, "exp", UnaryFunction::Saves::kResult, -1, 1},
    {PointwiseOp::kLog, PointwiseOp::kDiv, "log", UnaryFunction::Saves::kInput, 0.3, 3},
    {PointwiseOp::kSqrt, PointwiseOp::kSqrtBackward, "sqrt", UnaryFunction::Saves::kResult, 0.3, 3},
    {PointwiseOp::kTanh, PointwiseOp::kTanhBackward, "tanh", UnaryFunction::Saves::kResult, -3, 3},
    {PointwiseOp::kRelu, PointwiseOp::kReluBackward, "relu", UnaryFunction::Saves::kResult, -1, 1},
    {PointwiseOp::kGelu, PointwiseOp::kGeluBackward, "gelu", UnaryFunction::Saves::kInput, -4, 4},
    {PointwiseOp::kSilu, PointwiseOp::kSiluBackward, "silu", UnaryFunction::Saves::kInput, -4, 4},
    {PointwiseOp::kSigmoid, PointwiseOp::kSigmoidBackward, "sigmoid", UnaryFunction::Saves::kResult, -4, 4},
    {PointwiseOp::kSoftplus, PointwiseOp::kSoftplusBackward, "softplus", UnaryFunction::Saves::kInput, -4, 4},
    {PointwiseOp::kGeluErf, PointwiseOp::kGeluErfBackward, "gelu_erf", UnaryFunction::Saves::kInput, -4, 4},
};

}  // namespace lockstep
