// Differentiable operations. Each is one function, with its backward pass right below the forward pass (ops/*.cpp). All
// take fp32, bf16 and fp16 (fp64 in tests) and accumulate in fp32; the result has the type of the first input. Each
// names its tasks for traces (TraceOp). Shapes in comments: B batch, T time, C channels, V classes. Errors:
// ExitCode::kInternal, naming operation, shapes, types and the place of the call. `place` is filled in by the compiler.
#pragma once

#include "core/autograd/node.h"
#include "core/base/ignore_index.h"
#include "core/kernels/pointwise.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Pointwise, with broadcasting.
Tensor add(const Tensor& a, const Tensor& b, CallSite place = CallSite::current());
Tensor sub(const Tensor& a, const Tensor& b, CallSite place = CallSite::current());
Tensor mul(const Tensor& a, const Tensor& b, CallSite place = CallSite::current());
Tensor div(const Tensor& a, const Tensor& b, CallSite place = CallSite::current());
Tensor affine(const Tensor& x, double scale, double shift = 0,
              CallSite place = CallSite::current());  // scale * x + shift
// A function of core/kernels/pointwise.h: kUnaryFunctions, by its `forward`.
Tensor unary(PointwiseOp forward, const Tensor& x, CallSite place = CallSite::current());
inline Tensor exp(const Tensor& x, CallSite place = CallSite::current()) { return unary(PointwiseOp::kExp, x, place); }
inline Tensor log(const Tensor& x, CallSite place = CallSite::current()) { return unary(PointwiseOp::kLog, x, place); }
inline Tensor sqrt(const Tensor& x, CallSite place = CallSite::current()) {
  return unary(PointwiseOp::kSqrt, x, place);
}
inline Tensor tanh(const Tensor& x, CallSite place = CallSite::current()) {
  return unary(PointwiseOp::kTanh, x, place);
}
inline Tensor relu(const Tensor& x, CallSite place = CallSite::current()) {
  return unary(PointwiseOp::kRelu, x, place);
}
// In its tanh form.
inline Tensor gelu(const Tensor& x, CallSite place = CallSite::current()) {
  return unary(PointwiseOp::kGelu, x, place);
}
// x * sigmoid(x), also called swish.
inline Tensor silu(const Tensor& x, CallSite place = CallSite::current()) {
  return unary(PointwiseOp::kSilu, x, place);
}
// silu(a) * b, of equal shapes: the gate of SwiGLU (Shazeer 2020).
Tensor silu_mul(const Tensor& a, const Tensor& b, CallSite place = CallSite::current());
inline Tensor sigmoid(const Tensor& x, CallSite place = CallSite::current()) {
  return unary(PointwiseOp::kSigmoid, x, place);
}
// log(1 + e^x)
inline Tensor softplus(const Tensor& x, CallSite place = CallSite::current()) {
  return unary(PointwiseOp::kSoftplus, x, place);
}
// log(sigmoid(x))
inline Tensor log_sigmoid(const Tensor& x, CallSite place = CallSite::current()) {
  return affine(softplus(affine(x, -1, 0, place), place), -1, 0, place);
}
// In its exact form, by the error function.
inline Tensor gelu_erf(const Tensor& x, CallSite place = CallSite::current()) {
  return unary(PointwiseOp::kGeluErf, x, place);
}
// x where it is positive, else slope * x.
Tensor leaky_relu(const Tensor& x, double slope = 0.01, CallSite place = CallSite::current());
// cap * tanh(x / cap), between -cap and cap.
Tensor soft_cap(const Tensor& x, double cap, CallSite place = CallSite::current());
Tensor abs(const Tensor& x, CallSite place = CallSite::current());  // with the gradient 0 at 0
// x^exponent; NaN for negative x unless the exponent is a whole number.
Tensor pow(const Tensor& x, double exponent, CallSite place = CallSite::current());
// The value in [low, high] that is nearest to x; elements outside take no gradient.
Tensor clamp(const Tensor& x, double low, double high, CallSite place = CallSite::current());
// Element by element, with broadcasting; NaN if either is. Where both are equal, a takes the gradient.
Tensor maximum(const Tensor& a, const Tensor& b, CallSite place = CallSite::current());
Tensor minimum(const Tensor& a, const Tensor& b, CallSite place = CallSite::current());
Tensor cast(const Tensor& x, DType dtype, CallSite place = CallSite::current());

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }
inline Tensor operator/(const Tensor& a, const Tensor& b) { return div(a, b); }
inline Tensor operator-(const Tensor& x) { return affine(x, -1); }
inline Tensor operator+(const Tensor& x, double s) { return affine(x, 1, s); }
inline Tensor operator+(double s, const Tensor& x) { return affine(x, 1, s); }
inline Tensor operator-(const Tensor& x, double s) { return affine(x, 1, -s); }
inline Tensor operator-(double s, const Tensor& x) { return affine(x, -1, s); }
inline Tensor operator*(const Tensor& x, double s) { return affine(x, s); }
inline Tensor operator*(double s, const Tensor& x) { return affine(x, s); }
Tensor operator/(const Tensor& x, double s);  // each element divided, and not multiplied by 1 / s
Tensor operator/(double s, const Tensor& x);

// Masks, with broadcasting and without gradient: 1 where the relation holds, else 0, of a's type.
Tensor compare(Comparison relation, const Tensor& a, const Tensor& b);
inline Tensor eq(const Tensor& a, const Tensor& b) { return compare(Comparison::kEqual, a, b); }
inline Tensor ne(const Tensor& a, const Tensor& b) { return compare(Comparison::kNotEqual, a, b); }
inline Tensor lt(const Tensor& a, const Tensor& b) { return compare(Comparison::kLess, a, b); }
inline Tensor le(const Tensor& a, const Tensor& b) { return compare(Comparison::kLessEqual, a, b); }
inline Tensor gt(const Tensor& a, const Tensor& b) { return compare(Comparison::kGreater, a, b); }
inline Tensor ge(const Tensor& a, const Tensor& b) { return compare(Comparison::kGreaterEqual, a, b); }
// a where the condition (of any type) is not 0, else b; with broadcasting, of a's type.
Tensor where(const Tensor& condition, const Tensor& a, const Tensor& b, CallSite place = CallSite::current());

// In place, without gradient.
void add_in_place(const Tensor& a, const Tensor& b);

// Views. reshape copies if the tensor is not contiguous.
Tensor reshape(const Tensor& x, const Shape& shape, CallSite place = CallSite::current());
Tensor permute(const Tensor& x, const std::vector<int>& order, CallSite place = CallSite::current());
Tensor transpose(const Tensor& x, int a, int b, CallSite place = CallSite::current());
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end, CallSite place = CallSite::current());
Tensor expand(const Tensor& x, const Shape& shape, CallSite place = CallSite::current());
// Tensors of equal shapes but for dimension `dim`, side by side along it.
Tensor concat(const std::vector<Tensor>& parts, int dim, CallSite place = CallSite::current());
// Tensors of equal shapes, side by side along a new dimension `dim`.
Tensor stack(const std::vector<Tensor>& parts, int dim, CallSite place = CallSite::current());
// Views of consecutive parts of dimension `dim`, whose extents must add up to its own.
std::vector<Tensor> split(const Tensor& x, const std::vector<int64_t>& extents, int dim,
                          CallSite place = CallSite::current());
// x surrounded by `value`: before and after each dimension in turn as many elements as `around` says (not negative).
struct Padding {
  int64_t before = 0, after = 0;
};
Tensor pad(const Tensor& x, const std::vector<Padding>& around, double value = 0, CallSite place = CallSite::current());

// Reductions over `dims` (empty: all), which the result does not have any more.
Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, CallSite place = CallSite::current());
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, CallSite place = CallSite::current());
// The first of equal elements takes the gradient. NaN counts as infinity.
Tensor max(const Tensor& x, const std::vector<int>& dims = {}, CallSite place = CallSite::current());
Tensor min(const Tensor& x, const std::vector<int>& dims = {}, CallSite place = CallSite::current());

// Along the last dimension, of at most 2^24 elements. Indices are int32.
struct TopK {
  Tensor values, indices;  // [..., k]
};
// The k largest elements, largest first, the first of equal ones before later ones. NaN counts as infinity. Time grows
// with k times the extent.
TopK topk(const Tensor& x, int64_t k, CallSite place = CallSite::current());
Tensor argmax(const Tensor& x);  // [...]: the index of the largest element, of the first if several are equal
Tensor cumsum(const Tensor& x,
              CallSite place = CallSite::current());  // y[..., i] = x[..., 0] + ... + x[..., i], in that order
// y[..., i] = x[..., index[..., i]]. Throws ExitCode::kBadData for an index outside x's last dimension, as embedding
// does.
Tensor gather(const Tensor& x, const Tensor& index, CallSite place = CallSite::current());
// x with source[..., i] added to its elements index[..., i], in the order of i. Throws likewise.
Tensor scatter_add(const Tensor& x, const Tensor& index, const Tensor& source, CallSite place = CallSite::current());

// [..., m, k] x [k, n], or batched with equal leading extents.
Tensor matmul(const Tensor& a, const Tensor& b, CallSite place = CallSite::current());
// y[..., out] = x[..., in] weight[out, in]^T + bias[out]; bias may be undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, CallSite place = CallSite::current());
// linear(gelu(linear(x, up, up_bias)), down, down_bias), with the same bits on a CPU; on a GPU, cuBLASLt fuses gelu and
// its gradient with the products where it can. NaN and infinity of the inner values reach the result, where anomaly
// mode finds them.
Tensor feed_forward(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                    const Tensor& down_bias, CallSite place = CallSite::current());

Tensor softmax(const Tensor& x, CallSite place = CallSite::current());      // last dimension
Tensor log_softmax(const Tensor& x, CallSite place = CallSite::current());  // last dimension
// Sum over rows of -log softmax(logits[..., V])[target]; rows whose target is `ignored` add 0. fp32 scalar [1]. With
// label smoothing s each row's loss is 1 - s times that plus s / V times the sum of it over all classes. If the
// logits are moved in and no other tensor shares them, their gradient overwrites them, which saves memory and passes:
// in the backward pass, or in the forward pass within WithLossGradient (core/device/context.h), which says what a wrong
// prediction costs.
Tensor cross_entropy(Tensor logits, const Tensor& target, int64_t ignored = kIgnoreIndex, double label_smoothing = 0,
                     CallSite place = CallSite::current());
// The same of logits x weight^T, for x [..., C], weight [V, C] and targets [...], of which `rows_at_once` rows, rounded
// up to a multiple of 64, are held at a time: forward for the loss, and once more in the backward pass for the
// gradient. The bits are those of cross_entropy(linear(x, weight)) on a CPU; a GPU's library may sum products of other
// extents in another order. With a logit_cap above 0 the loss is that of soft_cap(logits, logit_cap).
Tensor linear_cross_entropy(const Tensor& x, const Tensor& weight, const Tensor& target, int64_t rows_at_once,
                            int64_t ignored = kIgnoreIndex, double label_smoothing = 0, double logit_cap = 0,
                            CallSite place = CallSite::current());
// The losses of the rows themselves, without smoothing, as those two would add them: fp32 of the targets' shape (fp64
// of fp64), each with a gradient of its own.
Tensor token_losses(Tensor logits, const Tensor& target, int64_t ignored = kIgnoreIndex,
                    CallSite place = CallSite::current());
Tensor linear_token_losses(const Tensor& x, const Tensor& weight, const Tensor& target, int64_t rows_at_once,
                           int64_t ignored = kIgnoreIndex, double logit_cap = 0, CallSite place = CallSite::current());
// The same of logits [..., V] with the loss of each row multiplied by its target's weight, of fp32 [V], and by its own,
// fp32 of the target's shape. Either may be undefined: all of them are 1.
Tensor weighted_cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& of_classes,
                              int64_t ignored = kIgnoreIndex, double label_smoothing = 0, const Tensor& of_rows = {},
                              CallSite place = CallSite::current());
// The same of logits [N, V] that have two targets each, `target` and `other`, int32 [N], none ignored: the loss of the
// other counts by its `share`, fp32 [N], that of the first by 1 - share.
Tensor mixed_cross_entropy(const Tensor& logits, const Tensor& target, const Tensor& other, const Tensor& share,
                           double label_smoothing = 0, CallSite place = CallSite::current());
// More losses, in fp32 whatever the type of their inputs (fp64 for fp64): sums, as scalars [1]. Targets may have a
// gradient, too. x and target, or what stands in their place, have equal shapes. `weights`, of the same shape and
// without a gradient, multiply the losses of the elements; undefined: all of them are 1. (x - target)^2
Tensor mse_loss(const Tensor& x, const Tensor& target, const Tensor& weights = {},
                CallSite place = CallSite::current());
// With d = |x - target|: d^2 / 2 where d <= delta, else delta (d - delta / 2).
Tensor huber_loss(const Tensor& x, const Tensor& target, double delta = 1, const Tensor& weights = {},
                  CallSite place = CallSite::current());
// -target log(sigmoid(logits)) - (1 - target) log(1 - sigmoid(logits)); targets in [0, 1].
Tensor bce_with_logits(const Tensor& logits, const Tensor& target, CallSite place = CallSite::current());
// target (log(target) - log_p), 0 where the target is 0: probabilities and log-probabilities.
Tensor kl_div(const Tensor& log_p, const Tensor& target, CallSite place = CallSite::current());
// Focal loss (Lin et al. 2017): -weight (1 - p)^gamma log(p), where p is the probability of the target and the weight
// is alpha for targets of 1 and 1 - alpha for those of 0. Targets are 0 or 1.
Tensor binary_focal_loss(const Tensor& logits, const Tensor& target, double alpha = 0.25, double gamma = 2,
                         CallSite place = CallSite::current());
// The same over classes, -(1 - p)^gamma log(p) with p = softmax(logits[..., V])[target]; targets int32 [...], of which
// those that are `ignored` add 0.
Tensor focal_loss(const Tensor& logits, const Tensor& target, double gamma = 2, int64_t ignored = kIgnoreIndex,
                  CallSite place = CallSite::current());
// Dice loss (Milletari et al. 2016) of probabilities p [N, ...]: sum over samples of
// 1 - (2 sum(p target) + smooth) / (sum(p) + sum(target) + smooth).
Tensor dice_loss(const Tensor& p, const Tensor& target, double smooth = 1, CallSite place = CallSite::current());
// (x - mean) / sqrt(var + eps) * weight + bias over the last dimension; bias may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5,
                  CallSite place = CallSite::current());
// sum = a + b, of equal shapes and types, and y = layer_norm(sum), in one pass; same bits as in two.
struct AddLayerNorm {
  Tensor sum, y;
};
AddLayerNorm add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias,
                            double eps = 1e-5, CallSite place = CallSite::current());
// Batch norm over all dimensions but the last, of C channels: (x - mean) / sqrt(variance + eps) * weight +
// bias, then + addend where it is defined, then relu where asked for. `fixed`: mean and variance [C] to use; where they
// are undefined, those of x. Statistics and weights' arithmetic in fp32.
struct BatchNormed {
  Tensor y, mean, variance;  // of x, fp32 [C]; the variance unbiased; undefined where they were given
};
struct BatchNormOptions {
  double eps = 1e-5;
  bool relu = false;
  Tensor addend, fixed_mean, fixed_variance;
};
BatchNormed batch_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, const BatchNormOptions& options = {},
                       CallSite place = CallSite::current());
// Group norm (Wu and He 2018) of x [B, ..., C]: (x - mean) / sqrt(variance + eps) * weight + bias, with mean and
// variance of each sample's C / groups neighbouring channels over all dimensions in between; weight and bias [C].
// Statistics in fp32.
Tensor group_norm(const Tensor& x, int64_t groups, const Tensor& weight, const Tensor& bias, double eps = 1e-5,
                  CallSite place = CallSite::current());
// x / sqrt(mean(x^2) + eps) * weight over the last dimension.
Tensor rms_norm(const Tensor& x, const Tensor& weight, double eps = 1e-5, CallSite place = CallSite::current());
// Rotary position embedding (Su et al. 2021) of heads x [B, T, heads, D], D even and at most 2 RotaryArgs::kMostPairs,
// in its rotate-half form: elements i and i + n of a head at position t, counted from 0 in each sequence, are rotated
// by t * frequencies[i] radians. `frequencies` has n <= D / 2 values, which core/nn/rotary.h computes; elements from 2
// n on stay. With `starts`, int32 [B], sequence b begins at position starts[b].
Tensor rotary(const Tensor& x, const std::vector<double>& frequencies, const Tensor& starts = {},
              CallSite place = CallSite::current());
// Rows of table[V, C] by index[...] (int32): [..., C]. Throws ExitCode::kBadData for an index outside [0, V): at once
// on a CPU, on a GPU when the host next waits for the stream.
Tensor embedding(const Tensor& table, const Tensor& index, CallSite place = CallSite::current());
// Zeroes elements with probability p and scales the rest by 1 / (1 - p). Dimension 0 is that of the samples in
// context().random, which with `site` (random_site) is the key of the random numbers.
Tensor dropout(const Tensor& x, double p, uint64_t site, CallSite place = CallSite::current());
// Standard normal numbers of that shape and floating-point type, without gradient; their key is as dropout's.
Tensor randn(const Shape& shape, uint64_t site, DType type = DType::kFloat32);
Tensor uniform(const Shape& shape, uint64_t site, DType type = DType::kFloat32);  // likewise, within -1 and 1
// x [B, H, W, C] with weight [O, KH, KW, C / groups], bias [O] or undefined: [B, H', W', O]. The taps of the kernel are
// `dilation` pixels apart. Channels fall into groups: each of O sees those of its own group alone; with C groups the
// convolution is depthwise.
struct ConvOptions {
  int64_t stride = 1, padding = 0, dilation = 1, groups = 1;
};
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, const ConvOptions& options = {},
              CallSite place = CallSite::current());
// The transpose of conv2d, which an output of conv2d gives its input's gradient by: x [B, H, W, I] with weight
// [I, KH, KW, O], bias [O] or undefined: [B, (H - 1) stride - 2 padding + KH, ..., O].
Tensor conv_transpose2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride = 1,
                        int64_t padding = 0, CallSite place = CallSite::current());
// x [B, H, W, C]; the padding, at most half a window, never wins.
Tensor max_pool2d(const Tensor& x, int64_t window, int64_t stride, int64_t padding = 0,
                  CallSite place = CallSite::current());
// The mean of each window of x [B, H, W, C]. The padding, at most half a window, counts as zeros; without
// `count_padding` the mean is of the pixels of x alone.
Tensor avg_pool2d(const Tensor& x, int64_t window, int64_t stride, int64_t padding = 0, bool count_padding = true,
                  CallSite place = CallSite::current());
// x [B, H, W, C] to [B, height, width, C]: pixel i of a dimension is the mean of pixels floor(i in / out) to
// ceil((i + 1) in / out). A height and width of 1 give the mean of the whole image.
Tensor adaptive_avg_pool2d(const Tensor& x, int64_t height, int64_t width, CallSite place = CallSite::current());
// x [B, H, W, C] to [B, height, width, C], or to `factor` times its height and width. Nearest: pixel i is pixel
// floor(i in / out). Bilinear: pixel i lies at (i + 0.5) in / out - 0.5, clamped to the image, between the centers of
// the pixels around it (PyTorch's align_corners = false).
enum class Upsampling { kNearest, kBilinear };
Tensor upsample2d(Upsampling how, const Tensor& x, int64_t height, int64_t width, CallSite place = CallSite::current());
Tensor upsample2d(Upsampling how, const Tensor& x, int64_t factor, CallSite place = CallSite::current());
// A recurrent layer over time, from a state of 0; backwards in time if `reverse`. x [B, T, I]: [B, T, H]. Weights and
// biases have PyTorch's layout: weight_ih [G H, I], weight_hh [G H, H], biases [G H], with the gates i, f, g, o of an
// LSTM and r, z, n of a GRU (core/kernels/cell.h). Gates and the LSTM's cells are kept in fp32.
enum class Cell { kLstm, kGru };
Tensor recurrent(Cell cell, const Tensor& x, const Tensor& weight_ih, const Tensor& weight_hh, const Tensor& bias_ih,
                 const Tensor& bias_hh, bool reverse = false, CallSite place = CallSite::current());
// Causal self-attention on packed queries, keys, values [B, T, 3C]: [B, T, C], C = heads * dim. Memory grows linearly
// with T.
Tensor causal_attention(const Tensor& qkv, int64_t heads, CallSite place = CallSite::current());
// The same of queries q [B, T, heads, D] and keys and values k, v [B, T, kv_heads, D]: [B, T, heads, D]. Each head of k
// and v serves heads / kv_heads neighbouring heads of q (Ainslie et al. 2023). With a window W > 0 a query sees the
// last W keys at most, itself among them; with a score_cap above 0 scores are capped (AttentionOptions).
Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t window = 0, double score_cap = 0,
                        CallSite place = CallSite::current());
// The same without order, packed as above or apart: every query sees every key, except as the options say. Keys and
// values [B, S, kv_heads, D] may be of another length than the queries (cross attention), if not causal.
struct AttentionOptions {
  bool causal = false;    // a query sees no key after itself
  int64_t window = 0;     // if > 0, causal only: a query sees the last so many keys at most, itself among them
  Tensor lengths = {};    // int32 [B], at least 1: only the first so many keys of a sample are seen
  Tensor starts = {};     // int32 [B]: where the first query of a sample stands among S >= T keys; causal, no gradients
  Tensor documents = {};  // int32 [B, T]: a query sees the keys of its own document only; not with lengths
  // Dropout of the probabilities, keyed as dropout() is; on a GPU it keeps cuDNN's kernels from use.
  double drop_probability = 0;
  uint64_t drop_site = 0;
  double score_cap = 0;  // if > 0: scores s are score_cap * tanh(s / score_cap); likewise
};
Tensor attention(const Tensor& qkv, int64_t heads, CallSite place = CallSite::current());
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options = {},
                 CallSite place = CallSite::current());

}  // namespace lockstep
