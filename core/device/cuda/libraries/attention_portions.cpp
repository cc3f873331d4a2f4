#include "core/device/cuda/libraries/attention_portions.h"

#include <algorithm>

#include "core/base/partition.h"
#include "core/device/cuda/kernels/attention_mask.h"

namespace lockstep::cuda {
namespace {

// As many at once as fit in the bytes, and as even as can be.
int64_t even(int64_t count, int64_t bytes_each) {
  const int64_t fit = std::max<int64_t>(attention_score_bytes() / bytes_each, 1);
  return ceil_div(count, ceil_div(count, fit));
}
// The log-sum-exps of the next sample are.
bool samples_are_aligned(const AttentionArgs& a) { return a.heads * a.time % 4 == 0; }

struct Portions {
  int64_t samples, kv_heads;
};
Portions portions_of(const AttentionArgs& a) {
  const int64_t of_head = round_up(a.time, 128) * round_up(a.key_time(), 128) * size_of(a.dtype);
  const bool aligned = samples_are_aligned(a);
  const int64_t samples = even(a.batch, a.heads * of_head);
  const int64_t kv_heads = even(a.kv_heads, a.heads / a.kv_heads * of_head);
  const bool heads_aligned = aligned && a.dim % 8 == 0 && kv_heads * (a.heads / a.kv_heads) * a.time % 4 == 0;
  if (samples == 1 && heads_aligned) return {1, kv_heads};
  return {aligned ? samples : round_up(samples, 4), a.kv_heads};
}

HeadGroup portion_of(const AttentionArgs& all, int64_t sample, int64_t samples, int64_t kv_head, int64_t kv_heads) {
  HeadGroup a = all_heads(all);
  const int64_t share = all.heads / all.kv_heads, head = kv_head * share;
  a.batch = std::min(samples, all.batch - sample);
  a.kv_heads = std::min(kv_heads, all.kv_heads - kv_head), a.heads = a.kv_heads * share;
  const auto from = [&](void* data, int64_t time, int64_t stride, int64_t first) {  // null: not of this direction
    return data ? static_cast<char*>(data) + (sample * time * stride + first * a.dim) * size_of(a.dtype) : nullptr;
  };
  for (HeadRows* rows : {&a.q, &a.dq}) rows->data = from(rows->data, a.time, rows->stride, head);
  for (HeadRows* rows : {&a.k, &a.v, &a.dk, &a.dv}) rows->data = from(rows->data, a.key_time(), rows->stride, kv_head);
  a.y = from(all.y, a.time, a.width, head), a.dy = from(all.dy, a.time, a.width, head);
  a.lse = static_cast<float*>(all.lse) + (sample * all.heads + head) * a.time;
  if (a.documents) a.documents += sample * a.time;
  if (a.lengths) a.lengths += sample;
  return a;
}

}  // namespace

int64_t& attention_score_bytes() {
  static int64_t bytes = int64_t(1) << 30;
  return bytes;
}

std::vector<HeadGroup> masked_portions(const AttentionArgs& a) {
  int64_t samples = even(a.batch, mask_bytes(a) / a.batch);
  if (!samples_are_aligned(a)) samples = round_up(samples, 4);
  std::vector<HeadGroup> out;
  for (int64_t sample = 0; sample < a.batch; sample += samples)
    out.push_back(portion_of(a, sample, samples, 0, a.kv_heads));
  return out;
}

std::vector<HeadGroup> backward_portions(const AttentionArgs& a) {
  const Portions portions = portions_of(a);
  std::vector<HeadGroup> out;
  for (int64_t sample = 0; sample < a.batch; sample += portions.samples)
    for (int64_t head = 0; head < a.kv_heads; head += portions.kv_heads)
      out.push_back(portion_of(a, sample, portions.samples, head, portions.kv_heads));
  return out;
}

}  // namespace lockstep::cuda
