// The operations that models are made of. Each is one function with its backward pass right below it (ops/*.cpp).
// Every operation takes fp32, bf16 and fp16 (fp64 in tests) and accumulates in fp32; the result has its first input's
// type. Each names its tasks for traces (TraceOp). Shapes in comments: B batch, T time, C channels, V classes. Errors:
// ExitCode::kInternal naming operation, shapes, types, and the call.
#pragma once

#include "core/autograd/node.h"
#include "core/base/ignore_index.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Pointwise, with broadcasting.
Tensor add(const Tensor& a, const Tensor& b, Place place = Place::current());
Tensor sub(const Tensor& a, const Tensor& b, Place place = Place::current());
Tensor mul(const Tensor& a, const Tensor& b, Place place = Place::current());
Tensor div(const Tensor& a, const Tensor& b, Place place = Place::current());
Tensor affine(const Tensor& x, double scale, double shift = 0, Place place = Place::current());  // scale * x + shift
Tensor exp(const Tensor& x, Place place = Place::current());
Tensor log(const Tensor& x, Place place = Place::current());
Tensor sqrt(const Tensor& x, Place place = Place::current());
Tensor tanh(const Tensor& x, Place place = Place::current());
Tensor relu(const Tensor& x, Place place = Place::current());
Tensor gelu(const Tensor& x, Place place = Place::current());  // tanh form
Tensor cast(const Tensor& x, DType dtype, Place place = Place::current());

inline Tensor operator+(const Tensor& a, const Tensor& b) { return add(a, b); }
inline Tensor operator-(const Tensor& a, const Tensor& b) { return sub(a, b); }
inline Tensor operator*(const Tensor& a, const Tensor& b) { return mul(a, b); }

// In place, without gradient.
void add_in_place(const Tensor& a, const Tensor& b);

// Views. reshape copies where the tensor is not contiguous.
Tensor reshape(const Tensor& x, const Shape& shape, Place place = Place::current());
Tensor permute(const Tensor& x, const std::vector<int>& order, Place place = Place::current());
Tensor transpose(const Tensor& x, int a, int b, Place place = Place::current());
Tensor slice(const Tensor& x, int dim, int64_t begin, int64_t end, Place place = Place::current());
Tensor expand(const Tensor& x, const Shape& shape, Place place = Place::current());

// Reductions. `dims` empty means all; the result keeps the other extents only.
Tensor sum(const Tensor& x, const std::vector<int>& dims = {}, Place place = Place::current());
Tensor mean(const Tensor& x, const std::vector<int>& dims = {}, Place place = Place::current());

// [..., m, k] x [k, n], or batched with equal leading extents.
Tensor matmul(const Tensor& a, const Tensor& b, Place place = Place::current());
// y[..., out] = x[..., in] weight[out, in]^T + bias[out]; bias may be undefined.
Tensor linear(const Tensor& x, const Tensor& weight, const Tensor& bias = {}, Place place = Place::current());
// linear(gelu(linear(x, up, up_bias)), down, down_bias), with those ops' bits on a CPU; a GPU's library computes gelu
// and its gradient along with the products where it can. NaN or infinity on the way reaches the result, so that anomaly
// mode sees it there.
Tensor feed_forward(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                    const Tensor& down_bias, Place place = Place::current());

Tensor softmax(const Tensor& x, Place place = Place::current());  // last dimension
// Sum over rows of -log softmax(logits[..., V])[target]; rows whose target is `ignored` count nothing. fp32 scalar [1].
// Logits that are moved in, and that nobody else holds, lose their bytes to their own gradient, which spares memory and
// passes over them: in the backward pass, or at once within WithLossGradient (core/device/context.h). Where the loss's
// gradient turns out to be another one, theirs is rescaled, with a rounding more; where it is a very different one,
// what overflowed or underflowed in fp16 or bf16 stays so.
Tensor cross_entropy(Tensor logits, const Tensor& target, int64_t ignored = kIgnoreIndex,
                     Place place = Place::current());
// (x - mean) / sqrt(var + eps) * weight + bias over the last dimension; bias may be undefined.
Tensor layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias, double eps = 1e-5,
                  Place place = Place::current());
// sum = a + b, of equal shapes and types, and y = layer_norm(sum), in one pass; the bits of the two one after the
// other.
struct AddLayerNorm {
  Tensor sum, y;
};
AddLayerNorm add_layer_norm(const Tensor& a, const Tensor& b, const Tensor& weight, const Tensor& bias,
                            double eps = 1e-5, Place place = Place::current());
// table[V, C] rows by index[...] (int32): [..., C]
Tensor embedding(const Tensor& table, const Tensor& index, Place place = Place::current());
// Zeroes elements with probability p and scales the rest by 1 / (1 - p), keyed by the context's (seed, step, sample of
// dimension 0) and `site` (random_site).
Tensor dropout(const Tensor& x, double p, uint64_t site, Place place = Place::current());
// x [B, H, W, C] with weight [O, KH, KW, C], bias [O] or undefined: [B, H', W', O]
Tensor conv2d(const Tensor& x, const Tensor& weight, const Tensor& bias, int64_t stride = 1, int64_t padding = 0,
              Place place = Place::current());
Tensor max_pool2d(const Tensor& x, int64_t window, int64_t stride, Place place = Place::current());  // x [B, H, W, C]
// Causal self-attention on packed queries, keys, values [B, T, 3C]: [B, T, C], C = heads * dim. Memory linear in T.
Tensor causal_attention(const Tensor& qkv, int64_t heads, Place place = Place::current());

}  // namespace lockstep
