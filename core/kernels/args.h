// Arguments of the kernels beside pointwise and row operations (pointwise.h, rows.h): raw pointers, element types and
// strides, as plain structs that a GPU launch can copy. Plain values; memory belongs to the caller.
#pragma once

#include <cstdint>

#include "core/base/dtype.h"
#include "core/kernels/update_control.h"

namespace lockstep {

// An optimizer's fused pass over one slot (inputs -> outputs), by its name in core/kernels/update.cpp, a literal.
// Learning rate, gradient scale and skip flag are read from `control` when the update runs. An additional output
// receives the first one again, converted to its type.
using UpdateOp = const char*;
// Fills the control buffer from the host's numbers (learning rate, bias corrections) and the device's verdict (gradient
// scale, skip). Bias corrections depend on the number of updates done. While the host does not know whether the
// previous update was skipped (kUnsettled), it passes the corrections of both cases, and the kernel chooses by the
// previous update's kSkip in the control buffer.
struct UpdateControlArgs {
  // Indices into `numbers`; kCorrections: two pairs, without and with the previous update.
  static constexpr int kLr = 0, kUnsettled = 1, kCorrections = 2, kCount = 6;
  static constexpr int kGradScale = 0, kSkip = 1, kVerdict = 2;  // indices into `verdict`, and its size
  const float *numbers = nullptr, *verdict = nullptr;
  float* control = nullptr;
};

// Sums down columns: out[a, b] = sum_r f(...)[a, r, b] over [batch, rows, cols], rows contiguous.
struct ColumnArgs {
  int64_t batch = 1, rows = 0, cols = 0;
  void* out = nullptr;  // [batch, cols]
  DType out_dtype = DType::kFloat32;
  const void* in = nullptr;  // [batch, rows, cols], contiguous
  DType in_dtype = DType::kFloat32;
  bool accumulate = false;
  bool in_lanes = false;  // on a CPU: each column in the order of RowOp::kSum; then without `accumulate`
};

// Gradients of a norm's weight and bias: dweight[c] = sum_r g * (x - mean) * rstd, dbias[c] = sum_r g.
struct NormColumnsArgs {
  int64_t rows = 0, cols = 0;
  const void *g = nullptr, *x = nullptr;
  DType g_dtype = DType::kFloat32, x_dtype = DType::kFloat32;
  const void *mean = nullptr, *rstd = nullptr;  // fp32, or fp64 where x is; no mean: 0, as RMS norm has it
  void *dweight = nullptr, *dbias = nullptr;    // dbias may be absent
  DType dweight_dtype = DType::kFloat32, dbias_dtype = DType::kFloat32;
  bool accumulate_weight = false, accumulate_bias = false;
};

// Sums of each channel of x [batch, rows, channels], contiguous, over the rows. Without g: out0 the mean, out1 the sum
// of the squared distances from it. With g [batch, rows, channels]: out0[c] = sum_r g, out1[c] = sum_r g (x - mean)
// rstd, with 0 in place of g where x scale + shift is not positive, if these are given. Sums, mean, rstd, scale and
// shift are [batch, channels], fp32, or fp64 where x is.
struct ChannelSumsArgs {
  int64_t batch = 1, rows = 0, channels = 0;
  const void *x = nullptr, *g = nullptr;
  DType x_dtype = DType::kFloat32, g_dtype = DType::kFloat32;
  const void *mean = nullptr, *rstd = nullptr, *scale = nullptr, *shift = nullptr;
  void *out0 = nullptr, *out1 = nullptr;
};

// value[e] += rate (row[e] - value[e]) for each row of `order` in turn whose element is not NaN, unless the verdict
// says to skip.
struct FoldArgs {
  int64_t count = 0, elements = 0, stride = 0;  // rows; elements, and where the next row begins
  float* value = nullptr;
  const float* rows = nullptr;
  const int32_t* order = nullptr;  // [count]
  float rate = 0;
  const float* verdict = nullptr;  // UpdateControlArgs::verdict
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

// Applied to S, the result above rounded to C's type. If a GPU's library fuses it, gelu may be computed from S before
// rounding.
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
  // [m], may be absent: set to, or increased by, the sums of A over k. In g^T x, the gradient of a weight, this is the
  // gradient of the bias. A must be the transpose of a contiguous matrix. Not with a batch, a bias or an epilogue.
  void* bias_gradient = nullptr;
  DType bias_gradient_dtype = DType::kFloat32;
  bool accumulate_bias_gradient = false;
};

// Convolution of NHWC images with weights [out, kh, kw, in / groups]. Group g of the output channels sees group g of
// the input channels.
struct ConvArgs {
  int64_t images = 0, height = 0, width = 0, in_channels = 0;
  int64_t out_height = 0, out_width = 0, out_channels = 0;
  int64_t kernel_h = 0, kernel_w = 0, stride = 1, padding = 0;
  int64_t dilation = 1;  // from one tap of the kernel to the next, in pixels
  int64_t groups = 1;
  void *x = nullptr, *weight = nullptr, *y = nullptr;  // or their gradients, in the backward kernels
  DType x_dtype = DType::kFloat32, weight_dtype = DType::kFloat32, y_dtype = DType::kFloat32;
  const void* bias = nullptr;
  DType bias_dtype = DType::kFloat32;
  bool accumulate = false;
};

// Max pooling of NHWC images, whose padding never wins (less than a window); `index` holds the offset of each maximum
// in its window, of the first one if several are equal.
struct PoolArgs {
  int64_t images = 0, height = 0, width = 0, channels = 0, out_height = 0, out_width = 0;
  int64_t window = 0, stride = 0, padding = 0;
  void *x = nullptr, *y = nullptr;
  DType dtype = DType::kFloat32;
  uint8_t* index = nullptr;
};

// y = x with elements i and i + dim / 2 of each head rotated by position * frequencies[i] radians; x and y
// [batch, time, heads, dim], contiguous.
struct RotaryArgs {
  static constexpr int kMostPairs = 128;
  int64_t batch = 0, time = 0, heads = 0, dim = 0;  // dim: even
  int64_t pairs = 0;  // the first 2 * pairs elements of a head are turned, i with i + pairs; the others stay
  const void* x = nullptr;
  void* y = nullptr;
  DType dtype = DType::kFloat32;        // of both
  bool back = false;                    // by the negative angles: the gradient
  const int32_t* starts = nullptr;      // [batch]: position of each sample's first row; absent: 0
  double frequencies[kMostPairs] = {};  // radians a position; `pairs` of them

  constexpr int64_t position(int64_t sample, int64_t row) const { return row + (starts ? starts[sample] : 0); }
};

// Heads of an operand of attention: element d of head h at (sample, position) is
// data[(sample * time + position) * stride + h * dim + d].
struct HeadRows {
  void* data = nullptr;
  int64_t stride = 0;  // from one position to the next, in elements
};

// Attention of queries [batch, time] to keys and values [batch, key_time()]. Each head of k and v serves heads /
// kv_heads neighbouring heads of q.
struct AttentionArgs {
  int64_t batch = 0, time = 0, heads = 0, kv_heads = 0, dim = 0;
  int64_t keys = 0;  // positions of keys and values; 0: as many as queries. Another number than theirs: not causal, or
                     // with starts
  bool causal = true;  // a query sees no key after itself
  int64_t window = 0;  // a query sees this many keys at most, itself among them; 0: all up to itself; causal only
  const int32_t* lengths = nullptr;  // [batch]: of each sample, at least 1; later keys are seen by none; may be absent
  // [batch]: of each sample, the position of the first query among the keys; absent: 0. Causal, without documents and
  // dropout, in the forward pass only.
  const int32_t* starts = nullptr;
  // [batch, time]: a query sees the keys of its own document only; may be absent. Not with other keys than queries, nor
  // with lengths.
  const int32_t* documents = nullptr;
  // Dropout of the probabilities, keyed by seed, step, site and the global index of each sample
  // (core/kernels/attention/attention_dropout.h).
  double drop_probability = 0;  // [0, 1)
  uint64_t seed = 0, step = 0, site = 0;
  const int64_t* samples = nullptr;  // [batch]
  HeadRows q, k, v, dq, dk, dv;
  void *y = nullptr, *dy = nullptr;  // [batch, time, heads * dim]
  DType dtype = DType::kFloat32;     // of all eight
  void* lse = nullptr;               // [batch, heads, time] log-sum-exp of each row; fp32, or fp64 where they are
  double scale = 1;
  double score_cap = 0;  // c: scores are c * tanh(scale * q.k / c) (core/kernels/attention/score_cap.h); 0: scale * q.k

  // q, k and v side by side in [batch, time, (heads + 2 * kv_heads) * dim], and likewise their gradients.
  void unpack(void* qkv, void* dqkv) {
    const int64_t stride = (heads + 2 * kv_heads) * dim;
    auto part = [&](void* packed, int64_t before) {
      return HeadRows{packed ? static_cast<char*>(packed) + before * dim * size_of(dtype) : nullptr, stride};
    };
    q = part(qkv, 0), k = part(qkv, heads), v = part(qkv, heads + kv_heads);
    dq = part(dqkv, 0), dk = part(dqkv, heads), dv = part(dqkv, heads + kv_heads);
  }
  constexpr int64_t key_time() const { return keys > 0 ? keys : time; }
  // The first key that a query of [0, time) sees.
  constexpr int64_t first_key(int64_t sample, int64_t query) const {
    const int64_t position = query + start(sample);
    return window > 0 && position >= window ? position - window + 1 : 0;
  }
  // The end of the keys that it sees.
  constexpr int64_t end_key(int64_t sample, int64_t query) const {
    const int64_t next = query + start(sample) + 1, end = causal && next < key_time() ? next : key_time();
    return lengths && lengths[sample] < end ? lengths[sample] : end;
  }
  // Whether it sees this key, of those from first_key() to end_key().
  constexpr bool in_document(int64_t sample, int64_t query, int64_t key) const {
    return !documents || documents[sample * time + query] == documents[sample * time + key];
  }
  constexpr int64_t start(int64_t sample) const { return starts ? starts[sample] : 0; }
};

// out[i] = the sum of values[ranges[2i] .. ranges[2i+1]) in the order of a tree that splits n values after the largest
// power of two below n. `values` may be overwritten.
struct TreeSumsArgs {
  double* values = nullptr;
  const int64_t* ranges = nullptr;  // pairs; disjoint
  int64_t count = 0;
  double* out = nullptr;
};

// Values and their 8-bit codes with a scale for each kStateChunk of them (core/kernels/codes/block_codes.h).
struct BlockCodesArgs {
  int64_t count = 0;  // values
  float* values = nullptr;
  uint8_t* codes = nullptr;
  float* scales = nullptr;
};

// Coded weights (core/kernels/codes/weight_codes.h) and what they decode to.
struct WeightCodesArgs {
  int64_t count = 0;  // elements
  DType coding = DType::kNf4, values_dtype = DType::kFloat32;
  const void* codes = nullptr;
  void* values = nullptr;  // fp32, bf16 or fp16
};

// The outcome of a step, from values gathered from all ranks: mean loss, norm of the mean gradient, whether both are
// finite, and the factor for gradients.
struct StepOutcomeArgs {
  // Indices into `out`. out[kProblem] is 0 if all values are finite, else one of the problems below.
  static constexpr int kLoss = 0, kGradNorm = 1, kTargets = 2, kProblem = 3, kGradScale = 4, kRequests = 5, kCount = 6;
  static constexpr int kLossProblem = 1, kNormProblem = 2,
                       kFirstTensor = 3;  // kFirstTensor + i: tensor i is not finite
  static constexpr int kMostOpen = 64;    // partial sums that wait for their siblings: at most one for each tree level

  const double* values = nullptr;
  const int32_t* losses = nullptr;    // [micro_batches]: index in `values` of its summed loss, then its target count
  const int32_t* requests = nullptr;  // [ranks]: index of the bits of what that rank asks for; all of them are joined
  const int32_t* first = nullptr;     // [tensors + 1]: each tensor's first node
  const int32_t* nodes = nullptr;     // pairs: index of a node's sum of squares, number of subtrees that it completes
  int64_t micro_batches = 0, ranks = 0, tensors = 0;
  double nominal = 1, loss_scale = 1, clip_norm = 0;  // gradients are sums / nominal * loss_scale; 0: no clipping
  double* out = nullptr;                              // [kCount]
  float* verdict = nullptr;                           // UpdateControlArgs::verdict
};

// out[i] = value[i]: writes a few host values in the order of the stream.
struct StoreArgs {
  static constexpr int kMost = 8;
  float* out = nullptr;
  int count = 0;
  float value[kMost] = {};
};

// Checks that every index is `ignored` or in [0, end). Otherwise throws ExitCode::kBadData naming the first: at once on
// a CPU, on an accelerator when the host next waits for the stream.
struct IndexCheckArgs {
  enum class Use : uint8_t { kEmbedding, kTarget, kElement };
  const int32_t* index = nullptr;
  int64_t count = 0, end = 0;
  int64_t ignored = INT64_MIN;  // none
  Use use = Use::kEmbedding;
};

// Initial values of elements [begin, end) of a parameter; see core/nn/init.h. The same bits at every instruction-set
// level. With dims > 0 these count in row-major order in a box: its element (i, j, ...) is element
// first + i stride[0] + j stride[1] + ... of the parameter, and the last stride is 1.
struct InitialArgs {
  bool normal = false;  // else uniform
  float scale = 0;      // standard deviation, or bound
  uint64_t seed = 0, site = 0;
  int64_t begin = 0, end = 0;
  float* out = nullptr;
  int dims = 0;
  int64_t first = 0, extent[8] = {}, stride[8] = {};
};

}  // namespace lockstep
