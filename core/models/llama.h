// Llama: a decoder-only transformer with RMS norms, rotary positions, grouped queries and SwiGLU (Touvron et al. 2023),
// and what its relatives change: a sliding window (Mistral) in the upper layers alone (Qwen2), biases of queries, keys
// and values (Qwen2), norms of queries and keys (Qwen3), norms after the branches (OLMo 2), layers without positions
// (SmolLM3), layers that are computed together (Phi-3), rotary positions of a part of each head (Phi-4-mini), capped
// scores and logits (Gemma 2), what Gemma 3 changes, and layer norms, hidden layers without a gate and branches side by
// side (GPT-NeoX).
#pragma once

#include "core/base/field.h"
#include "core/models/token_transformer.h"
#include "core/nn/layers.h"
#include "core/nn/rotary.h"

namespace lockstep {

// Where the norm of a branch stands: x + branch(norm(x)), x + norm(branch(x)), or both.
enum class BranchNorm { kBefore, kAfter, kBoth };
enum class GateForm { kSilu, kGelu, kGeluErf };  // of the hidden layer; kGelu: in its tanh form
enum class NormForm { kRms, kLayer };            // layer norms have biases

struct LlamaOptions {
  int64_t layers = 4, heads = 4, width = 128;
  int64_t kv_heads = 0;       // 0: as many as heads
  int64_t head_width = 0;     // 0: width / heads
  int64_t hidden = 0;         // 0: 8/3 of the width, rounded up to a multiple of 32
  int64_t window = 0;         // 0: none
  int64_t window_from = 0;    // the first layer with the window, from 0
  int64_t full_every = 0;     // each layer of this number, counted from 1, has no window; 0: none
  int64_t no_rope_every = 0;  // each layer of this number, counted from 1, has no rotary embedding; 0: all have it
  double norm_eps = 1e-5;
  bool tied = false, qkv_bias = false, qk_norm = false;
  bool qk_norm_whole = false;  // qk_norm is over all heads together
  bool proj_bias = false, mlp_bias = false;
  bool fused = false;          // q, k and v are one layer, and gate and up one
  bool fused_by_head = false;  // in that of q, k and v those of a head follow each other; as many kv_heads as heads
  bool gated = true;           // down(gate(x) * up(x)), with the function `gate`; else down(gate(up(x)))
  bool parallel = false;       // x + attention(norm(x)) + hidden(norm'(x))
  NormForm norm = NormForm::kRms;
  BranchNorm norms = BranchNorm::kBefore;
  bool norms_from_one = false;  // weights of norms are what is added to 1
  GateForm gate = GateForm::kSilu;
  bool scaled_embedding = false;  // by the root of the width
  double attention_scale = 0;     // of scores; 0: by the root of a head's width
  double score_cap = 0;           // c: scores s of attention are c tanh(s / c); 0: s
  double logit_cap = 0;           // likewise of logits
  int64_t rope_width = 0;         // features of a head that rotary positions turn, the first ones; 0: all
  RopeOptions rope = {};
  double window_theta = 0;  // rope_theta of layers with the window, whose frequencies are not scaled; 0: as the others
  int64_t vocabulary = 0;   // 0: that of the data

  // With the zeros above replaced. Throws ExitCode::kConfig, naming the key, where sizes do not fit together.
  LlamaOptions resolved() const;
  int64_t window_of(int64_t layer) const {
    return layer < window_from || (full_every > 0 && (layer + 1) % full_every == 0) ? 0 : window;
  }
  RopeOptions rope_of(int64_t layer) const {
    return window_theta > 0 && window_of(layer) > 0 ? RopeOptions{.theta = window_theta} : rope;
  }
  // Whether the length of a text decides between two lists of frequencies.
  bool has_two_ropes() const { return rope.scaling == RopeScaling::kLongrope && rope.by_length; }
  bool has_rope(int64_t layer) const { return no_rope_every == 0 || (layer + 1) % no_rope_every != 0; }
};
std::vector<Field> fields(LlamaOptions& o);

// A norm of either form.
using LlamaNorm = ModuleOf<Tensor>;

// What attention and blocks share. All three take resolved options.
class LlamaPart : public ModuleOf<Tensor, AttentionScope> {
 protected:
  LlamaNorm& norm_child(const char* name, const LlamaOptions& options, int64_t width);
  // With norms on both sides; else null.
  LlamaNorm* post_norm_child(const LlamaOptions& options);
};

class LlamaAttention : public LlamaPart {
 public:
  // `context`: the longest text, in tokens.
  LlamaAttention(const LlamaOptions& options, int64_t layer, int64_t context);
  Tensor forward(const Tensor& x_BTC, const AttentionScope& scope) override;
  MaskedAttentions masked_attention(DType type) const override;

 private:
  Linear* part_of_qkv(const LlamaOptions& options, const char* name, int64_t heads);
  Tensor scaled(const Tensor& q) const;

  int64_t heads_, kv_heads_, head_width_, window_;
  BranchNorm norms_;
  double scale_;       // of queries, beside the root of a head's width
  double rope_scale_;  // of what is turned of them
  double score_cap_;
  std::vector<double> frequencies_;  // empty: without rotary embedding
  int64_t short_tokens_;             // texts of more have, unless those are empty,
  std::vector<double> long_frequencies_;
  LlamaNorm& norm_;
  Linear *q_ = nullptr, *k_ = nullptr, *v_ = nullptr;  // or
  Linear* qkv_ = nullptr;
  bool fused_by_head_;
  LlamaNorm *q_norm_ = nullptr, *k_norm_ = nullptr;  // of each head, or all of them; null without qk_norm
  bool qk_norm_whole_;
  Linear& proj_;
  LlamaNorm* post_norm_ = nullptr;  // with norms on both sides
};

class LlamaBlock : public LlamaPart {
 public:
  LlamaBlock(const LlamaOptions& options, int64_t layer, int64_t context);
  Tensor forward(const Tensor& x_BTC, const AttentionScope& scope) override;
  int recompute_attention(bool on) override;

 private:
  Tensor hidden(const Tensor& x);

  BranchNorm norms_;
  bool parallel_, gated_;
  GateForm gate_form_;
  LlamaAttention& attention_;
  LlamaNorm& norm_;
  int64_t hidden_;
  Linear *gate_ = nullptr, *up_ = nullptr;  // the second alone without a gate; or
  Linear* gate_up_ = nullptr;
  Linear& down_;
  LlamaNorm* post_norm_ = nullptr;
};

class Llama : public TokenTransformer {
 public:
  Llama(const LlamaOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override { return {{"tokens", TensorNeed::Type::kInteger, 1}}; }
  bool has_features() const override { return true; }
  Embedding& token_embedding() override { return wte_; }
  bool is_tied() const override { return head_ == nullptr; }
  const Tensor* head() const override;
  double logit_cap() const override { return options_.logit_cap; }
  int64_t cached_tokens() const override;
  using TokenTransformer::forward;
  // int32 -> [B, T, V]; after a cache [B, 1, V].
  Tensor forward(const Tensor& tokens_BT, const AttentionScope& scope) override;
  double flops() const override;

 protected:
  Tensor with_head(const std::function<Tensor(const Tensor& weight)>& use) override;
  Tensor features(const Tensor& tokens_BT, const AttentionScope& scope) override;

 private:
  LlamaOptions options_;  // resolved
  int64_t context_;
  Embedding& wte_;
  std::vector<LlamaBlock*> blocks_;
  LlamaNorm* norm_;
  Linear* head_ = nullptr;  // null where it is tied to wte
};

}  // namespace lockstep
