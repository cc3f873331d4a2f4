#include <cmath>

#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr const char* kCausalAttention = "causal_attention";

// Everything but the addresses.
AttentionArgs arguments(int64_t batch, int64_t time, int64_t heads, int64_t kv_heads, int64_t dim, DType dtype) {
  AttentionArgs a;
  a.batch = batch, a.time = time, a.heads = heads, a.kv_heads = kv_heads, a.dim = dim;
  a.scale = 1.0 / std::sqrt(static_cast<double>(dim));
  a.dtype = dtype;
  return a;
}

HeadRows rows_of(const Tensor& dense, void* data) { return {data, dense.dim(2) * dense.dim(3)}; }
HeadRows read_rows(const Tensor& dense) { return rows_of(dense, const_cast<void*>(dense.read())); }

// a.q, a.k and a.v are set.
struct Attended {
  explicit Attended(AttentionArgs a)
      : y(Tensor::empty({a.batch, a.time, a.heads * a.dim}, a.dtype)),
        lse(Tensor::empty({a.batch, a.heads, a.time}, a.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32)) {
    a.y = y.write(), a.lse = lse.write();
    raw::launch([](Parallel& p, const AttentionArgs& args) { kernels(p).attention(p, args); }, a);
  }
  Tensor y, lse;
};

// a.q, a.k, a.v and their gradients are set.
void attend_backward(AttentionArgs a, const Saved& y, const Saved& lse, const Tensor& gradient) {
  const Tensor g = raw::contiguous(gradient);
  a.y = const_cast<void*>(y.get(kCausalAttention).read());
  a.lse = const_cast<void*>(lse.get(kCausalAttention).read());
  a.dy = const_cast<void*>(g.read());
  raw::launch([](Parallel& p, const AttentionArgs& args) { kernels(p).attention_backward(p, args); }, a);
}

Tensor attend_packed(const char* name, const Tensor& qkv, int64_t heads, bool causal, CallSite place) {
  const TraceOp op(name);
  check(qkv.rank() == 3 && heads > 0 && qkv.dim(2) % (3 * heads) == 0, name, ": ", qkv,
        " is no [batch, time, 3 * width] whose width divides into ", heads, " heads");
  AttentionArgs sizes = arguments(qkv.dim(0), qkv.dim(1), heads, heads, qkv.dim(2) / (3 * heads), qkv.dtype());
  sizes.causal = causal;
  const Tensor packed = raw::contiguous(qkv.detach());
  AttentionArgs a = sizes;
  a.unpack(const_cast<void*>(packed.read()), nullptr);
  const Attended out(a);
  return result_of(
      name, place, out.y, {&qkv},
      [sizes, qkv = Saved(packed), y = Saved(out.y), lse = Saved(out.lse)](const Tensor& gradient, Gradients& grads) {
        const Tensor& packed = qkv.get(kCausalAttention);
        const Tensor dqkv = Tensor::empty(packed.shape(), packed.dtype());
        AttentionArgs b = sizes;
        b.unpack(const_cast<void*>(packed.read()), dqkv.write());
        attend_backward(b, y, lse, gradient);
        grads.add(0, dqkv);
      });
}

void check_operands(const char* name, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o) {
  const Tensor &lengths = o.lengths, &documents = o.documents, &starts = o.starts;
  check(q.rank() == 4 && k.rank() == 4 && k.shape() == v.shape() && q.dim(0) == k.dim(0) && q.dim(3) == k.dim(3) &&
            k.dim(2) > 0 && q.dim(2) % k.dim(2) == 0 && q.dtype() == k.dtype() && k.dtype() == v.dtype() &&
            o.window >= 0 && (o.causal || o.window == 0) &&
            (!lengths || (lengths.dtype() == DType::kInt32 && lengths.numel() == q.dim(0) && o.window == 0)),
        name, ": queries ", q, ", keys ", k, ", values ", v, ", window ", o.window,
        lengths ? str(", lengths ", lengths) : "",
        "; it takes [batch, time, heads, dim] of one type, whose heads of keys divide those of queries, and a window "
        "without lengths");
  const bool cross = q.dim(1) != k.dim(1);
  check(!starts || (o.causal && !lengths && !documents && o.drop_probability == 0 && starts.dtype() == DType::kInt32 &&
                    starts.shape() == Shape{q.dim(0)} && k.dim(1) >= q.dim(1) && !requires_grad(q) &&
                    !requires_grad(k) && !requires_grad(v)),
        name, ": starts ", starts, " of queries ", q, ", keys ", k,
        "; they are int32 [batch], for causal attention without gradients, lengths, documents and dropout");
  check(!cross || starts || (!o.causal && !documents && q.dim(1) > 0 && k.dim(1) > 0), name, ": queries ", q, ", keys ",
        k, "; only attention without order and documents takes keys of another length than the queries");
  check(!documents || (documents.dtype() == DType::kInt32 && documents.is_contiguous() && !lengths &&
                       documents.shape() == Shape{q.dim(0), q.dim(1)}),
        name, ": documents ", documents, lengths ? str(" with lengths ", lengths) : "", " for queries ", q,
        "; they are int32 [batch, time], without lengths");
  check(o.drop_probability >= 0 && o.drop_probability < 1, name, ": dropout with probability ", o.drop_probability);
  check(o.score_cap >= 0, name, ": score cap ", o.score_cap);
}

Tensor attend(const char* name, const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& o,
              CallSite place) {
  const TraceOp op(name);
  check_operands(name, q, k, v, o);
  AttentionArgs sizes = arguments(q.dim(0), q.dim(1), q.dim(2), k.dim(2), q.dim(3), q.dtype());
  sizes.causal = o.causal, sizes.keys = k.dim(1), sizes.window = o.window < k.dim(1) ? o.window : 0;
  sizes.score_cap = o.score_cap;
  Tensor samples;
  if (o.drop_probability > 0 && q.numel() > 0) {
    samples = raw::samples_of(str(name, ": dropout"), q.shape());
    const RandomKey& random = context().random;
    sizes.drop_probability = o.drop_probability;
    sizes.seed = random.seed, sizes.step = static_cast<uint64_t>(random.step), sizes.site = o.drop_site;
  }
  const Tensor queries = raw::contiguous(q.detach()), keys = raw::contiguous(k.detach()),
               values = raw::contiguous(v.detach());
  const auto set_masks = [lengths = o.lengths, starts = o.starts, documents = o.documents,
                          samples](AttentionArgs& args) {
    if (starts) args.starts = static_cast<const int32_t*>(starts.read());
    if (lengths) args.lengths = static_cast<const int32_t*>(lengths.read());
    if (documents) args.documents = static_cast<const int32_t*>(documents.read());
    if (samples) args.samples = static_cast<const int64_t*>(samples.read());
  };
  AttentionArgs a = sizes;
  set_masks(a);
  a.q = read_rows(queries), a.k = read_rows(keys), a.v = read_rows(values);
  const Attended out(a);
  return result_of(name, place, out.y.reshape(q.shape()), {&q, &k, &v},
                   [sizes, set_masks, q = Saved(queries), k = Saved(keys), v = Saved(values), y = Saved(out.y),
                    lse = Saved(out.lse)](const Tensor& gradient, Gradients& grads) {
                     const Tensor &queries = q.get(kCausalAttention), &keys = k.get(kCausalAttention),
                                  &values = v.get(kCausalAttention);
                     const auto like = [](const Tensor& t) { return Tensor::empty(t.shape(), t.dtype()); };
                     const Tensor dq = like(queries), dk = like(keys), dv = like(values);
                     AttentionArgs b = sizes;
                     set_masks(b);
                     b.q = read_rows(queries), b.k = read_rows(keys), b.v = read_rows(values);
                     b.dq = rows_of(dq, dq.write()), b.dk = rows_of(dk, dk.write()), b.dv = rows_of(dv, dv.write());
                     attend_backward(b, y, lse, gradient);
                     if (grads.wanted(0)) grads.add(0, dq);
                     if (grads.wanted(1)) grads.add(1, dk);
                     if (grads.wanted(2)) grads.add(2, dv);
                   });
}

}  // namespace

Tensor causal_attention(const Tensor& qkv, int64_t heads, CallSite place) {
  return attend_packed(kCausalAttention, qkv, heads, true, place);
}
Tensor attention(const Tensor& qkv, int64_t heads, CallSite place) {
  return attend_packed("attention", qkv, heads, false, place);
}
Tensor causal_attention(const Tensor& q, const Tensor& k, const Tensor& v, int64_t window, double score_cap,
                        CallSite place) {
  return attend(kCausalAttention, q, k, v, {.causal = true, .window = window, .score_cap = score_cap}, place);
}
Tensor attention(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options, CallSite place) {
  return attend("attention", q, k, v, options, place);
}

}  // namespace lockstep
