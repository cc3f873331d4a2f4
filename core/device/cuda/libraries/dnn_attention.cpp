#include <cmath>
#include <cstring>

#include "core/device/cuda/kernels/attention_mask.h"
#include "core/device/cuda/kernels/tiled_attention.h"
#include "core/device/cuda/libraries/attention_portions.h"
#include "core/device/cuda/libraries/dnn_graphs.h"
#include "core/device/cuda/runtime/switches.h"
#include "core/kernels/attention/kind_of.h"

namespace lockstep::cuda {

using namespace dnn;

namespace {

// The heads of queries or of keys: how many, and at how many positions.
struct HeadSizes {
  int64_t heads, time;
};
HeadSizes query_sizes(const AttentionArgs& a) { return {a.heads, a.time}; }
HeadSizes key_sizes(const AttentionArgs& a) { return {a.kv_heads, a.key_time()}; }

// [batch, heads, time, dim] as it lies in memory.
Tensor_attributes head_attributes(Name name, const AttentionArgs& a, const HeadSizes& s, int64_t stride) {
  return Tensor_attributes()
      .set_uid(name)
      .set_dim({a.batch, s.heads, s.time, a.dim})
      .set_stride({s.time * stride, a.dim, stride, 1})
      .set_data_type(type_of(a.dtype));
}
void make_heads_output(const Node& node, Name name, const AttentionArgs& a, const HeadSizes& s, int64_t stride) {
  node->set_output(true)
      .set_uid(name)
      .set_dim({a.batch, s.heads, s.time, a.dim})
      .set_stride({s.time * stride, a.dim, stride, 1})
      .set_data_type(type_of(a.dtype));
}

// Bytes from the first element of the heads to behind the last.
int64_t bytes_of(const AttentionArgs& a, int64_t stride, const HeadSizes& s) {
  return ((a.batch * s.time - 1) * stride + s.heads * a.dim) * size_of(a.dtype);
}

// Log-sum-exp of scaled scores, to base e: the same as ours.
Sizes stats_sizes(const AttentionArgs& a) { return {a.batch, a.heads, a.time, 1}; }
Sizes stats_strides(const AttentionArgs& a) { return {a.heads * a.time, a.time, 1, 1}; }

bool has_mask(const AttentionArgs& a) { return a.documents || a.lengths; }

// What both directions share; a window counts the query's own key, as ours does. Documents and lengths are a table that
// is added to the scores. cuDNN's ragged layout is not used: on sm_80 its gradient cannot be deterministic, and on
// sm_90 it asks for the scores of each document at the full length of a row.
template <class Attributes>
Attributes masked(Graph& graph, const AttentionArgs& a) {
  Attributes out;
  out.set_causal_mask(a.causal).set_attn_scale(static_cast<float>(a.scale));
  if (a.window > 0) out.set_sliding_window_length(narrow<int>(a.window));
  const int64_t row = mask_stride(a), sample = a.time * row;
  if (has_mask(a))
    out.set_bias(graph.tensor(Tensor_attributes()
                                  .set_uid(kMask)
                                  .set_dim({a.batch, 1, a.time, a.key_time()})
                                  .set_stride({sample, sample, row, 1})
                                  .set_data_type(type_of(a.dtype))));
  return out;
}

void describe_attention(Graph& graph, const HeadGroup& a, fe::AttentionImplementation_t by) {
  auto [y, stats] =
      graph.sdpa(graph.tensor(head_attributes(kQ, a, query_sizes(a), a.q.stride)),
                 graph.tensor(head_attributes(kK, a, key_sizes(a), a.k.stride)),
                 graph.tensor(head_attributes(kV, a, key_sizes(a), a.v.stride)),
                 masked<fe::graph::SDPA_attributes>(graph, a).set_generate_stats(true).set_implementation(by));
  make_heads_output(y, kY, a, query_sizes(a), a.width);
  stats->set_output(true)
      .set_uid(kStats)
      .set_dim(stats_sizes(a))
      .set_stride(stats_strides(a))
      .set_data_type(fe::DataType_t::FLOAT);
}

void describe_attention_backward(Graph& graph, const HeadGroup& a, bool fast) {
  const Node stats = graph.tensor(Tensor_attributes()
                                      .set_uid(kStats)
                                      .set_dim(stats_sizes(a))
                                      .set_stride(stats_strides(a))
                                      .set_data_type(fe::DataType_t::FLOAT));
  auto [dq, dk, dv] =
      graph.sdpa_backward(graph.tensor(head_attributes(kQ, a, query_sizes(a), a.q.stride)),
                          graph.tensor(head_attributes(kK, a, key_sizes(a), a.k.stride)),
                          graph.tensor(head_attributes(kV, a, key_sizes(a), a.v.stride)),
                          graph.tensor(head_attributes(kY, a, query_sizes(a), a.width)),
                          graph.tensor(head_attributes(kDy, a, query_sizes(a), a.width)), stats,
                          masked<fe::graph::SDPA_backward_attributes>(graph, a).set_deterministic_algorithm(!fast));
  make_heads_output(dq, kDq, a, query_sizes(a), a.dq.stride);
  make_heads_output(dk, kDk, a, key_sizes(a), a.dk.stride);
  make_heads_output(dv, kDv, a, key_sizes(a), a.dv.stride);
}

Key key_of(Kind kind, const HeadGroup& a, int64_t more) {
  const float scale = static_cast<float>(a.scale);
  int32_t scale_bits = 0;
  memcpy(&scale_bits, &scale, sizeof scale);
  return {static_cast<int64_t>(kind),
          static_cast<int64_t>(a.dtype),
          a.batch,
          a.time,
          a.key_time(),
          a.heads,
          a.kv_heads,
          a.dim,
          a.window,
          a.causal,
          a.q.stride,
          a.k.stride,
          a.v.stride,
          a.dq.stride,
          a.dk.stride,
          a.dv.stride,
          a.width,
          scale_bits,
          more};
}

std::string text_of(Kind kind, const AttentionArgs& a) {
  const bool forward = kind == Kind::kAttention || kind == Kind::kOurAttention;
  return str(forward ? "attention" : "attention's gradient", " of ", a.batch, " x ", a.time, " x ", a.heads, " x ",
             a.dim, a.kv_heads == a.heads ? "" : str(", ", a.kv_heads, " heads of keys"),
             a.key_time() == a.time ? "" : str(", ", a.key_time(), " keys"),
             a.window > 0 ? str(", window ", a.window) : "", has_mask(a) ? ", masked" : "", ", ", a.dtype);
}

const Plan& attention_plan(CudaQueue& queue, Kind kind, const HeadGroup& a) {
  const bool fast = queue.is_fast() || switches().fast_attention;
  const auto text = [&] { return str(text_of(kind, a), fast ? ", fast" : ""); };
  const Key key = key_of(kind, a, (fast ? 1 : 0) | (has_mask(a) ? 2 : 0));
  Dnn& dnn = Dnn::of(queue);
  if (kind == Kind::kAttentionBackward)
    return dnn.plan(key, Sums::kAttention, text, [&](Graph& graph) { describe_attention_backward(graph, a, fast); });
  // The frontend's own choice looks at the version alone, and not at the GPU.
  const auto by = [&](fe::AttentionImplementation_t which) {
    return [&a, which](Graph& graph) { describe_attention(graph, a, which); };
  };
  return dnn.plan(key, Sums::kAttention, text, by(fe::AttentionImplementation_t::AUTO),
                  by(fe::AttentionImplementation_t::COMPOSITE));
}

// Why cuDNN is not asked: the place in kReasons; 0 where it is. Its dropout draws other numbers.
constexpr const char* kReasons[] = {"",
                                    "several documents in a row",
                                    "samples of several lengths",
                                    "queries that follow cached keys",
                                    "dropout by our random numbers",
                                    "a mask that is too large",
                                    "this type",
                                    "capped scores"};
int reason_of(const CudaQueue& queue, const AttentionArgs& a) {
  if (!is_narrow(a.dtype)) return 6;
  if (a.score_cap > 0) return 7;
  if (a.starts) return 3;
  if (a.drop_probability > 0) return 4;
  if (!has_mask(a)) return 0;
  if (!queue.trusted_masks().contains(kind_of(a))) return a.documents ? 1 : 2;
  return mask_bytes(a) / a.batch > attention_score_bytes() ? 5 : 0;
}

// Whether kernels of our own are to serve, which of 16-bit types is an order of magnitude slower: that is said at once.
bool is_ours(CudaQueue& queue, Kind kind, const HeadGroup& a) {
  const int reason = reason_of(queue, a);
  if (reason != 0 && is_narrow(a.dtype)) {
    const auto text = [&] { return str(text_of(kind, a), ", with ", kReasons[reason]); };
    Dnn::of(queue).warn_of_ours(key_of(kind, a, reason), text);
  }
  return reason != 0;
}

bool is_empty(const AttentionArgs& a) { return a.batch * a.time * a.heads * a.dim == 0; }

// Adds the mask of these samples, if they have one, to what a graph is given.
void add_mask(CudaQueue& queue, const HeadGroup& a, Pointers& pointers) {
  if (!has_mask(a)) return;
  pointers[kMask] = queue.scratch_memory(kMaskSlot, mask_bytes(a));
  attention_mask(queue, a, pointers[kMask]);
}

void run_forward(CudaQueue& queue, const Plan& plan, const HeadGroup& a) {
  const int64_t bytes = a.batch * a.time * a.width * size_of(a.dtype);
  const auto [q, k, v] = aligned_inputs<3>(queue, {{{a.q.data, bytes_of(a, a.q.stride, query_sizes(a))},
                                                    {a.k.data, bytes_of(a, a.k.stride, key_sizes(a))},
                                                    {a.v.data, bytes_of(a, a.v.stride, key_sizes(a))}}});
  void* const y = aligned_out(queue, a.y, bytes, 1);
  Pointers pointers{{kQ, q}, {kK, k}, {kV, v}, {kY, y}, {kStats, a.lse}};
  add_mask(queue, a, pointers);
  Dnn::of(queue).run(queue, plan, pointers, "attention");
  if (y != a.y) queue.copy(a.y, y, bytes);
}

void run_backward(CudaQueue& queue, const Plan& plan, const HeadGroup& a) {
  const auto [q, k, v, y, dy] = aligned_inputs<5>(queue, {{{a.q.data, bytes_of(a, a.q.stride, query_sizes(a))},
                                                           {a.k.data, bytes_of(a, a.k.stride, key_sizes(a))},
                                                           {a.v.data, bytes_of(a, a.v.stride, key_sizes(a))},
                                                           {a.y, bytes_of(a, a.width, query_sizes(a))},
                                                           {a.dy, bytes_of(a, a.width, query_sizes(a))}}});
  check(is_aligned(a.dq.data) && is_aligned(a.dk.data) && is_aligned(a.dv.data),
        "attention's gradient into memory that is not aligned to 16 bytes");  // the operation allocates it
  Pointers pointers{{kQ, q},         {kK, k},          {kV, v},          {kY, y},         {kDy, dy},
                    {kStats, a.lse}, {kDq, a.dq.data}, {kDk, a.dk.data}, {kDv, a.dv.data}};
  add_mask(queue, a, pointers);
  Dnn::of(queue).run(queue, plan, pointers, "attention's gradient");
}

// All portions by cuDNN, or nothing where it has no plan of one.
using RunPortion = void (*)(CudaQueue&, const Plan&, const HeadGroup&);
bool run_all(CudaQueue& queue, Kind kind, const std::vector<HeadGroup>& portions, RunPortion run) {
  std::vector<const Plan*> plans;
  for (const HeadGroup& portion : portions) {
    plans.push_back(&attention_plan(queue, kind, portion));
    if (!plans.back()->graph) return false;
  }
  for (size_t i = 0; i < portions.size(); ++i) run(queue, *plans[i], portions[i]);
  return true;
}

}  // namespace

void attention(Parallel& parallel, const AttentionArgs& a) {
  if (is_empty(a)) return;
  CudaQueue& queue = cuda_queue(parallel);
  if (is_ours(queue, Kind::kOurAttention, all_heads(a))) return tiled_attention(parallel, a);
  const std::vector<HeadGroup> portions = has_mask(a) ? masked_portions(a) : std::vector{all_heads(a)};
  if (!run_all(queue, Kind::kAttention, portions, run_forward)) tiled_attention(parallel, a);
}

void attention_backward(Parallel& parallel, const AttentionArgs& a) {
  if (is_empty(a)) return;
  CudaQueue& queue = cuda_queue(parallel);
  if (is_ours(queue, Kind::kOurAttentionBackward, all_heads(a))) return tiled_attention_backward(parallel, a);
  if (!run_all(queue, Kind::kAttentionBackward, backward_portions(a), run_backward))
    tiled_attention_backward(parallel, a);
}

bool takes_card_for_plans() { return cudnnGetVersion() >= 90800; }

PlanThere attention_plan_on(const CardForPlans& card, const AttentionArgs& args, bool gradient) {
  const HeadGroup a = all_heads(args);
  if (gradient)
    return plan_on(card, Sums::kAttention,
                   [&](Graph& graph) { describe_attention_backward(graph, a, /*fast=*/false); });
  const auto by = [&](fe::AttentionImplementation_t which) {
    return [&a, which](Graph& graph) { describe_attention(graph, a, which); };
  };
  return plan_on(card, Sums::kAttention, by(fe::AttentionImplementation_t::AUTO),
                 by(fe::AttentionImplementation_t::COMPOSITE));
}

}  // namespace lockstep::cuda
