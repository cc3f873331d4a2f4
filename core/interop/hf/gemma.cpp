// Gemma 2 and 3, the models of text: our llama with norms on both sides of a branch, weights of norms that are added to
// 1, a gelu in the gate, scaled embeddings, and layers with and without a window in turns: each second one has none, or
// each sixth. Gemma 2 caps scores and logits, Gemma 3 has norms of queries and keys.
#include <algorithm>
#include <cmath>

#include "core/interop/hf/llama_parts.h"

namespace lockstep {
namespace {

bool is_second(const HfConfig& c) { return c.text("model_type") == "gemma2"; }

// Layers with the window, and each `full_every`-th without. Refuses other layouts.
void read_windows(const HfConfig& c, LlamaOptions& o) {
  const int64_t window = c.is_null("sliding_window") ? 0 : c.integer("sliding_window", 4096);
  const auto types = c.texts("layer_types");
  int64_t every = is_second(c) ? 2 : c.integer("sliding_window_pattern", 6);
  if (!types.empty()) {
    every = std::find(types.begin(), types.end(), "full_attention") - types.begin() + 1;
    bool fits = std::ssize(types) == o.layers;
    for (int64_t i = 0; fits && i < o.layers; ++i)
      fits = types[static_cast<size_t>(i)] == ((i + 1) % every == 0 ? "full_attention" : "sliding_attention");
    if (!fits)
      c.refuse("layer_types",
               "is not supported: it must have one entry for each layer, full_attention in every n-th layer and "
               "sliding_attention in the others");
  }
  if (every < 1) c.refuse("sliding_window_pattern", "must be above 0");
  if (every == 1) return;  // no layer has the window
  if (window == 0) c.refuse("sliding_window", "is missing for sliding_attention");
  o.window = window;
  o.full_every = every > o.layers ? 0 : every;
}

// Gemma 3: of transformers 4 rope_theta and rope_scaling for layers without a window and rope_local_base_freq for the
// others, of 5 rope_parameters of both. Gemma 2 has the same for all.
void read_rope(const HfConfig& c, LlamaOptions& o) {
  const auto parameters = c.object("rope_parameters");
  if (is_second(c)) {
    const auto scaling = c.object("rope_scaling");
    if (parameters && scaling) c.refuse("rope_scaling", "beside rope_parameters is not supported");
    o.rope.theta = c.number("rope_theta", 1e4);
    const auto& how = parameters ? parameters : scaling;
    if (!how) return;
    o.rope.theta = how->number("rope_theta", o.rope.theta);
    read_rope_scaling(*how, c.integer("max_position_embeddings", 8192), o.rope);
    return;
  }
  const auto full = parameters ? parameters->object("full_attention") : std::nullopt,
             local = parameters ? parameters->object("sliding_attention") : std::nullopt;
  o.rope.theta = c.number("rope_theta", 1e6);
  double theta = c.number("rope_local_base_freq", 1e4);
  const auto scaling = c.object("rope_scaling");
  if (parameters && scaling) c.refuse("rope_scaling", "beside rope_parameters is not supported");
  const int64_t longest = c.integer("max_position_embeddings", o.rope.context);
  if (local) {
    RopeOptions of_windows;
    read_rope_scaling(*local, longest, of_windows);
    if (of_windows.scaling != RopeScaling::kNone) local->refuse("rope_type", "other than default is not supported");
    theta = local->number("rope_theta", theta);
  }
  if (o.window > 0) o.window_theta = theta;
  if (const auto& how = full ? full : scaling) {
    o.rope.theta = how->number("rope_theta", o.rope.theta);
    read_rope_scaling(*how, longest, o.rope);
  }
}

HfModel gemma_of(const HfConfig& c) {
  LlamaOptions o;
  const bool second = is_second(c);
  o.layers = c.integer("num_hidden_layers", 26);
  o.heads = c.integer("num_attention_heads", 8);
  o.kv_heads = c.integer("num_key_value_heads", 4);
  o.width = c.integer("hidden_size", 2304);
  o.head_width = c.integer("head_dim", 256);
  o.hidden = c.integer("intermediate_size", 9216);
  o.vocabulary = c.integer("vocab_size", second ? 256000 : 262208);
  for (const char* key : {"num_attention_heads", "num_key_value_heads", "intermediate_size", "head_dim"})
    if (c.has(key) && c.integer(key) < 1) c.refuse(key, "must be above 0");
  o.norm_eps = c.number("rms_norm_eps", 1e-6);
  o.tied = c.truth("tie_word_embeddings", true);
  o.qkv_bias = o.proj_bias = c.truth("attention_bias", false);
  o.norms_from_one = o.scaled_embedding = true;
  o.qk_norm = !second;
  o.norms = BranchNorm::kBoth;
  o.gate = GateForm::kGelu;
  c.one_of("hidden_activation", {"gelu_pytorch_tanh"});
  c.need_truth("use_bidirectional_attention", false);
  const auto cap = [&](const char* key, double standard) {
    if (!c.has(key)) return !second || c.is_null(key) ? 0 : standard;  // null: none
    if (!second) c.refuse(key, "is not supported");
    if (!(c.number(key) > 0)) c.refuse(key, "must be above 0");
    return c.number(key);
  };
  o.score_cap = cap("attn_logit_softcapping", 50), o.logit_cap = cap("final_logit_softcapping", 30);
  const double scalar = c.number("query_pre_attn_scalar", 256);
  if (!(scalar > 0)) c.refuse("query_pre_attn_scalar", "must be above 0");
  if (scalar != static_cast<double>(o.head_width)) o.attention_scale = 1 / std::sqrt(scalar);
  read_windows(c, o);
  read_rope(c, o);
  return llama_model(o, c, second ? 8192 : 131072);
}

HfExport gemma_export(const std::vector<Field>& options, const TaskSpec& task) {
  LlamaOptions o = exported_llama(options, task);
  const bool second = !o.qk_norm;
  require(o.width % o.heads == 0, ExitCode::kBadData, "model.heads: ", o.heads,
          " does not divide model.width: ", o.width, ", as transformers needs it of Gemma");
  require(second || o.window == 0 || o.window_theta > 0 || o.rope.scaling == RopeScaling::kNone, ExitCode::kBadData,
          "model.rope_scaling in layers with a window: gemma3_text has it in the others alone; set model.window_theta");
  HfExport out;
  out.model.family = second ? "gemma2" : "gemma3_text";
  out.chosen_by = str("model.norms: both", second ? "" : " and model.qk_norm: true");
  name_llama_tensors(o, out.model);
  std::vector<JsonValue> types;
  for (int64_t i = 0; i < o.layers; ++i) {
    const bool full = o.window == 0 || (o.full_every > 0 && (i + 1) % o.full_every == 0);
    types.emplace_back(std::string(full ? "full_attention" : "sliding_attention"));
  }
  const double scalar =
      o.attention_scale > 0 ? 1 / (o.attention_scale * o.attention_scale) : static_cast<double>(o.head_width);
  const auto whole = static_cast<int64_t>(std::llround(scalar));
  require(std::abs(scalar - static_cast<double>(whole)) < 1e-6 * scalar, ExitCode::kBadData,
          "model.attention_scale: ", o.attention_scale, " is not 1 / sqrt(n) of a whole number n, as Gemma has it");
  // What the file says in other words, for the same model.
  o.attention_scale = whole == o.head_width ? 0 : 1 / std::sqrt(static_cast<double>(whole));
  if (o.full_every > o.layers) o.full_every = 0;
  if (!second && o.window > 0 && o.window_theta == 0) o.window_theta = o.rope.theta;
  out.model.options = values_of(fields(o));
  out.config = llama_config(o, task, second ? "Gemma2ForCausalLM" : "Gemma3ForCausalLM", out.model.family);
  const auto add = [&](const char* key, JsonValue value) { out.config.emplace_back(key, std::move(value)); };
  add("hidden_activation", std::string("gelu_pytorch_tanh"));
  add("query_pre_attn_scalar", whole);
  if (second) {
    const auto cap = [](double c) { return c > 0 ? JsonValue(c) : JsonValue(nullptr); };
    add("attn_logit_softcapping", cap(o.score_cap));
    add("final_logit_softcapping", cap(o.logit_cap));
  } else {
    add("rope_local_base_freq", o.window_theta > 0 ? o.window_theta : o.rope.theta);
  }
  add("sliding_window", o.window > 0 ? JsonValue(o.window) : JsonValue(nullptr));
  add("layer_types", json_array(types));
  add("attention_bias", o.qkv_bias && o.proj_bias);
  add_token_ids(out.config);
  return out;
}

}  // namespace

HfFamily gemma_family() {
  return {.types = {"gemma2", "gemma3_text"},
          .model = "llama",
          .read = gemma_of,
          .write = gemma_export,
          .holds = has_norms_on_both_sides,
          .keep = keep_llama};
}

}  // namespace lockstep
