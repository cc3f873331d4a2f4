#include <cmath>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

// Everything but the addresses.
AttentionArgs arguments(const Tensor& qkv, int64_t heads) {
  AttentionArgs a;
  a.batch = qkv.dim(0), a.time = qkv.dim(1), a.heads = heads, a.dim = qkv.dim(2) / (3 * heads);
  a.scale = 1.0 / std::sqrt(static_cast<double>(a.dim));
  a.dtype = qkv.dtype();
  return a;
}

}  // namespace

Tensor causal_attention(const Tensor& qkv, int64_t heads, Place place) {
  const TraceOp op("causal_attention");
  check(qkv.rank() == 3 && heads > 0 && qkv.dim(2) % (3 * heads) == 0, "causal_attention: ", qkv,
        " is no [batch, time, 3 * width] whose width divides into ", heads, " heads");
  AttentionArgs a = arguments(qkv, heads);
  const Tensor packed = raw::contiguous(qkv.detach());
  Tensor y = Tensor::empty({a.batch, a.time, a.heads * a.dim}, qkv.dtype());
  Tensor lse =
      Tensor::empty({a.batch, a.heads, a.time}, qkv.dtype() == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32);
  a.qkv = const_cast<void*>(packed.read());
  a.y = y.write();
  a.lse = lse.write();
  raw::launch([](Parallel& p, const AttentionArgs& args) { kernels(p).attention(p, args); }, a);
  return result_of(
      "causal_attention", place, y, {&qkv},
      [qkv = Saved(packed), y = Saved(y), lse = Saved(lse), heads](const Tensor& gradient, Gradients& grads) {
        const Tensor g = raw::contiguous(gradient);
        const Tensor& packed = qkv.get("causal_attention");
        Tensor dqkv = Tensor::empty(packed.shape(), packed.dtype());
        AttentionArgs b = arguments(packed, heads);
        b.qkv = const_cast<void*>(packed.read());
        b.y = const_cast<void*>(y.get("causal_attention").read());
        b.lse = const_cast<void*>(lse.get("causal_attention").read());
        b.dy = const_cast<void*>(g.read());
        b.dqkv = dqkv.write();
        raw::launch([](Parallel& p, const AttentionArgs& args) { kernels(p).attention_backward(p, args); }, b);
        grads.add(0, dqkv);
      });
}

}  // namespace lockstep
