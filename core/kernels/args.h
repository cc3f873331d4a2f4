// Arguments of the kernels: raw pointers, element types and strides, as plain structs that a GPU launch can copy.
// Plain values; memory belongs to the caller.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"

namespace lockstep {

constexpr int kMaxDims = 6;  // after neighbouring dimensions that step alike have been merged
constexpr int kMaxIns = 5;
constexpr int kMaxOuts = 4;

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

enum class PointwiseOp : uint8_t {
  kCopy,         // y = x, with conversion
  kFill,         // y = s0
  kAdd,          // y = a + b
  kSub,          // y = a - b
  kMul,          // y = a * b
  kDiv,          // y = a / b
  kDivBackward,  // y = -g * a / b^2        (g, a, b)
  kAddScaled,    // y = a + s0 * b
  kAffine,       // y = s0 * x + s1
  kExp,
  kLog,
  kSqrt,
  kSqrtBackward,  // y = g / (2 y)           (g, y)
  kTanh,
  kTanhBackward,  // y = g * (1 - y^2)       (g, y)
  kRelu,
  kReluBackward,  // y = x > 0 ? g : 0       (g, x)
  kGelu,          // tanh form
  kGeluBackward,  // (g, x)
  kSquare,
};

// An optimizer's fused pass over one slot; learning rate and the like come from `control`, when the update runs. Where
// there is one more output than named here, p is written there too, in its type.
enum class UpdateOp : uint8_t {
  kSgd,    // p, momentum, g -> p, momentum. Scalars: momentum, weight decay, learning-rate scale, Nesterov (0 or 1).
  kAdamW,  // p, m, v, g -> p, m, v. Scalars: beta1, beta2, epsilon, weight decay, learning-rate scale.
};
// Positions in the control buffer.
struct UpdateControl {
  static constexpr int kLr = 0, kGradScale = 1, kSkip = 2, kCorrection1 = 3, kCorrection2 = 4, kCount = 8;
};
// control = what the host knows of an update and what the device found out about its gradients. Corrections depend on
// the updates done, and where the host does not know yet whether the one before was skipped, it gives those of both
// cases: kSkip in the control buffer, still the earlier update's, says which.
struct UpdateControlArgs {
  // Positions in `numbers`; pairs of corrections without and with that update.
  static constexpr int kLr = 0, kUnsettled = 1, kCorrections = 2, kCount = 6;
  static constexpr int kGradScale = 0, kSkip = 1, kVerdict = 2;  // positions in `verdict`, and how many
  const float *numbers = nullptr, *verdict = nullptr;
  float* control = nullptr;
};

// One row-wise pass over [rows, cols] matrices whose rows are contiguous. Absent operands have no data.
struct RowOperand {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t row_stride = 0;  // in elements; 0: the same row for all
};

constexpr int kMaxRowIns = 6;
constexpr int kMaxRowOuts = 4;

struct RowArgs {
  int64_t rows = 0, cols = 0;
  RowOperand out[kMaxRowOuts];
  RowOperand in[kMaxRowIns];
  double scalars[4] = {};
  int64_t integers[4] = {};
  uint64_t key[4] = {};
};

enum class RowOp : uint8_t {
  kLayerNorm,          // in: x, weight, bias?; out: y, mean[rows], rstd[rows]; s0: eps
  kAddLayerNorm,       // kLayerNorm of x = a + b; in: a, weight, bias?, b; out: y, mean[rows], rstd[rows], x; s0: eps
  kLayerNormBackward,  // in: g, x, weight, mean, rstd, addend?; out: dx
  kSoftmax,            // in: x; out: y
  kSoftmaxBackward,    // in: g, y; out: dx
  kCrossEntropy,       // in: logits, target (int32); out: loss[rows], lse[rows]; i0: ignored target
  kCrossEntropyBackward,   // in: logits, target, lse, g[rows] (stride 0: one value); out: dlogits, which may be logits;
                           // i0
  kCrossEntropyInOnePass,  // both, where g is known beforehand; in: logits, target (int32); out: dlogits, which may be
                           // logits, loss[rows]; s0: g; i0
  kRescale,                // x *= g / s0 where g is not s0; in: x, g[rows] (stride 0: one value); out: x
  kDropout,      // in: x, sample ids (int64, one a sample); out: y; s0: drop probability; i0: rows a sample; key: seed,
                 // step, site
  kSum,          // in: x; out: sum[rows]
  kMax,          // in: x; out: max[rows]
  kNormSquared,  // in: x; out: fp64 sum of squares[rows]
};

// Sums down columns: out[a, b] = sum_r f(...)[a, r, b] over [batch, rows, cols], rows contiguous.
struct ColumnArgs {
  int64_t batch = 1, rows = 0, cols = 0;
  void* out = nullptr;  // [batch, cols]
  DType out_dtype = DType::kFloat32;
  const void* in = nullptr;  // [batch, rows, cols], contiguous
  DType in_dtype = DType::kFloat32;
  bool accumulate = false;
};

// Gradients of layer norm's weight and bias: out0[c] = sum_r g * (x - mean) * rstd, out1[c] = sum_r g.
struct NormColumnsArgs {
  int64_t rows = 0, cols = 0;
  const void *g = nullptr, *x = nullptr;
  DType g_dtype = DType::kFloat32, x_dtype = DType::kFloat32;
  const void *mean = nullptr, *rstd = nullptr;  // fp32, or fp64 where x is
  void *dweight = nullptr, *dbias = nullptr;    // dbias may be absent
  DType dweight_dtype = DType::kFloat32, dbias_dtype = DType::kFloat32;
  bool accumulate_weight = false, accumulate_bias = false;
};

// out[r, :] = table[index[r], :], and its transpose: table[index[r], :] += g[r, :] in row order.
struct GatherArgs {
  int64_t rows = 0, cols = 0, table_rows = 0;
  void* table = nullptr;
  DType table_dtype = DType::kFloat32;
  const int32_t* index = nullptr;
  void* rows_data = nullptr;
  DType rows_dtype = DType::kFloat32;
};

// C[b] = (accumulate ? C[b] : 0) + A[b] B[b] (+ bias, one value a column), with any strides.
// The order of each element's sum depends on k alone, so neither threads nor the tiling of m and n change a bit.
struct Matrix {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  int64_t row_stride = 0, col_stride = 1, batch_stride = 0;  // in elements
};

// What becomes of S, the sums above rounded to C's type. Fused by a GPU's library, gelu may see them before rounding.
enum class Epilogue : uint8_t {
  kNone,          // C = S
  kGelu,          // aux = S, C = gelu(S)
  kGeluBackward,  // C = S * gelu'(aux)
};

struct GemmArgs {
  int64_t m = 0, n = 0, k = 0, batch = 1;
  Matrix a, b, c;  // c.col_stride must be 1
  const void* bias = nullptr;
  DType bias_dtype = DType::kFloat32;
  bool accumulate = false;
  Epilogue epilogue = Epilogue::kNone;  // not with a batch, nor with `accumulate`
  void* aux = nullptr;  // of the epilogue: [m, n], of C's type and strides; it and C aligned to 16 bytes
  // [m], absent or (+)= the sums of A over k: in the product g^T x, a weight's gradient, that of the bias. A is then
  // the transpose of a contiguous matrix. Not with a batch, a bias or an epilogue.
  void* bias_gradient = nullptr;
  DType bias_gradient_dtype = DType::kFloat32;
  bool accumulate_bias_gradient = false;
};

// Convolution of NHWC images with weights [out, kh, kw, in].
struct ConvArgs {
  int64_t images = 0, height = 0, width = 0, in_channels = 0;
  int64_t out_height = 0, out_width = 0, out_channels = 0;
  int64_t kernel_h = 0, kernel_w = 0, stride = 1, padding = 0;
  void *x = nullptr, *weight = nullptr, *y = nullptr;  // of the gradients where a backward pass says so
  DType x_dtype = DType::kFloat32, weight_dtype = DType::kFloat32, y_dtype = DType::kFloat32;
  const void* bias = nullptr;
  DType bias_dtype = DType::kFloat32;
  bool accumulate = false;
};

// Max pooling of NHWC images, windows without padding; `index` holds the offset in the window of each maximum (first
// wins).
struct PoolArgs {
  int64_t images = 0, height = 0, width = 0, channels = 0, out_height = 0, out_width = 0;
  int64_t window = 0, stride = 0;
  void *x = nullptr, *y = nullptr;
  DType dtype = DType::kFloat32;
  uint8_t* index = nullptr;
};

// Causal self-attention on packed [batch, time, 3 * heads * dim] (queries, keys, values); y is [batch, time, heads *
// dim].
struct AttentionArgs {
  int64_t batch = 0, time = 0, heads = 0, dim = 0;
  void *qkv = nullptr, *y = nullptr, *dy = nullptr, *dqkv = nullptr;
  DType dtype = DType::kFloat32;  // of all four
  void* lse = nullptr;            // [batch, heads, time] log-sum-exp of each row; fp32, or fp64 where qkv is
  double scale = 1;
};

// out[i] = the sum of values[ranges[2i] .. ranges[2i+1]) by the tree that splits after the largest power of two below
// the length. `values` may be used up.
struct TreeSumsArgs {
  double* values = nullptr;
  const int64_t* ranges = nullptr;  // pairs; disjoint
  int64_t count = 0;
  double* out = nullptr;
};

// What a step comes to, from the small values that the ranks gathered: mean loss, norm of the mean gradient, whether
// all of it is finite, and what gradients are to be multiplied with.
struct StepOutcomeArgs {
  // Positions in `out`; kProblem is 0 where all is finite, else one of those below.
  static constexpr int kLoss = 0, kGradNorm = 1, kTargets = 2, kProblem = 3, kGradScale = 4, kStop = 5, kCount = 6;
  static constexpr int kLossProblem = 1, kNormProblem = 2, kFirstPiece = 3;  // kFirstPiece + i: piece i is not finite
  static constexpr int kMostOpen = 64;  // subtrees that wait for their siblings: one a level at most

  const double* values = nullptr;
  const int32_t* losses = nullptr;  // [micro_batches]: where its summed loss is; the count of its targets follows
  const int32_t* stops = nullptr;   // [ranks]: not 0 where that rank was asked to stop
  const int32_t* first = nullptr;   // [pieces + 1]: each piece's first node
  const int32_t* nodes = nullptr;   // pairs: where a node's sum of squares is, how many subtrees it then completes
  int64_t micro_batches = 0, ranks = 0, pieces = 0;
  double nominal = 1, loss_scale = 1, clip_norm = 0;  // gradients are sums / nominal * loss_scale; 0: no clipping
  double* out = nullptr;                              // [kCount]
  float* verdict = nullptr;                           // UpdateControlArgs::verdict
};

// out[i] = value[i]: a few numbers that only the host knows, in the order of the stream.
struct StoreArgs {
  static constexpr int kMost = 8;
  float* out = nullptr;
  int count = 0;
  float value[kMost] = {};
};

// Every index must be `ignored`, or in [0, end): else ExitCode::kBadData naming the first, on a CPU at once, on an
// accelerator when the host next waits for the stream.
struct RangeArgs {
  enum class Use : uint8_t { kEmbedding, kTarget };
  const int32_t* index = nullptr;
  int64_t count = 0, end = 0;
  int64_t ignored = INT64_MIN;  // none
  Use use = Use::kEmbedding;
};

// Initial values of elements [begin, end) of a parameter; see core/nn/init.h. The same bits at every instruction-set
// level.
struct InitialArgs {
  bool normal = false;  // else uniform
  float scale = 0;      // standard deviation, or bound
  uint64_t seed = 0, site = 0;
  int64_t begin = 0, end = 0;
  float* out = nullptr;
};

}  // namespace lockstep
