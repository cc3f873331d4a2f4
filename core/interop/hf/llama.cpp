// Llama 2 and 3, Mistral, Qwen2, Qwen3: one model of ours.
#include "core/models/llama.h"
#include "core/interop/hf/shared.h"

namespace lockstep {
namespace {

void name_llama_tensors(const LlamaOptions& o, HfModel& m) {
  const HfLayers layers{m.tensors};
  layers.weight("wte", {"model.embed_tokens"});
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string ours = str("blocks.", i, "."), theirs = str("model.layers.", i, ".");
    layers.weight(ours + "attention.norm", {theirs + "input_layernorm"});
    for (const char* which : {"q", "k", "v"}) {
      const std::string from = str(theirs, "self_attn.", which, "_proj");
      if (o.qkv_bias) layers.both(str(ours, "attention.", which), {from});
      else layers.weight(str(ours, "attention.", which), {from});
    }
    if (o.qk_norm)
      for (const char* which : {"q_norm", "k_norm"})
        layers.weight(str(ours, "attention.", which), {str(theirs, "self_attn.", which)});
    layers.weight(ours + "attention.proj", {theirs + "self_attn.o_proj"});
    layers.weight(ours + "norm", {theirs + "post_attention_layernorm"});
    for (const char* which : {"gate", "up", "down"}) layers.weight(ours + which, {str(theirs, "mlp.", which, "_proj")});
  }
  layers.weight("norm", {"model.norm"});
  m.prefix = "model.";
  if (o.tied) m.copies = {{"lm_head.weight", "model.embed_tokens.weight"}};
  else layers.weight("head", {"lm_head"});
  m.ignored = {"*.rotary_emb.inv_freq"};
}

// Of transformers 4 "rope_theta" beside "rope_scaling", of 5 "rope_parameters".
RopeOptions rope_of(const HfConfig& c) {
  RopeOptions o;
  const auto parameters = c.object("rope_parameters"), scaling = c.object("rope_scaling");
  o.theta = c.number("rope_theta", o.theta);
  if (parameters) o.theta = parameters->number("rope_theta", o.theta);
  const auto& how = parameters ? parameters : scaling;
  if (!how) return o;
  for (const char* kind : {"full_attention", "sliding_attention"})
    if (how->has(kind)) how->refuse(kind, "is not supported: one rotary embedding for all layers is");
  const std::string key = how->has("rope_type") ? "rope_type" : "type";
  const std::string type = how->one_of(key, {"default", "linear", "llama3"});
  if (how->number("partial_rotary_factor", 1) != 1)
    how->refuse("partial_rotary_factor", "other than 1 is not supported");
  if (type == "default") return o;
  o.factor = how->number("factor");
  o.scaling = RopeScaling::kLinear;
  if (type == "linear") return o;
  o.scaling = RopeScaling::kLlama3;
  o.low_factor = how->number("low_freq_factor");
  o.high_factor = how->number("high_freq_factor");
  o.context = how->integer("original_max_position_embeddings");
  return o;
}

// The window that all layers have; refuses layers of several kinds.
int64_t window_of(const HfConfig& c, const std::string& type, int64_t layers) {
  if (type == "llama") return 0;
  int64_t window = c.is_null("sliding_window") ? 0 : c.integer("sliding_window", 4096);
  if (type != "mistral") {
    const int64_t from = c.integer("max_window_layers", 28);
    if (!c.truth("use_sliding_window", false)) window = 0;
    else if (!c.has("layer_types") && from > 0 && from < layers)
      c.refuse("max_window_layers", str(": a window in some of the ", layers, " layers alone is not supported"));
    else if (!c.has("layer_types") && from >= layers) window = 0;
  }
  const auto types = c.texts("layer_types");
  for (const std::string& t : types)
    if (t != types[0] || (t != "full_attention" && t != "sliding_attention"))
      c.refuse("layer_types", ": other than full_attention or sliding_attention in all layers is not supported");
  if (!types.empty() && types[0] == "full_attention") return 0;
  if (!types.empty() && window == 0) c.refuse("sliding_window", "is missing for sliding_attention");
  return window;
}

HfModel llama_of(const HfConfig& c) {
  const std::string type = c.text("model_type");
  LlamaOptions o;
  o.layers = c.integer("num_hidden_layers");
  o.heads = c.integer("num_attention_heads");
  o.width = c.integer("hidden_size");
  o.kv_heads = c.integer("num_key_value_heads", type == "mistral" ? 8 : type == "llama" ? o.heads : 32);
  if (o.heads < 1 || o.kv_heads < 1) c.refuse("num_attention_heads", "and num_key_value_heads must be above 0");
  o.head_width = c.integer("head_dim", type == "qwen3" ? 128 : 0);
  o.hidden = c.integer("intermediate_size");
  if (o.hidden < 1) c.refuse("intermediate_size", "must be above 0");
  o.window = window_of(c, type, o.layers);
  o.norm_eps = c.number("rms_norm_eps", 1e-6);
  o.tied = c.truth("tie_word_embeddings", false);
  o.qk_norm = type == "qwen3";
  o.qkv_bias = type == "qwen2";
  o.vocabulary = c.integer("vocab_size");
  o.rope = rope_of(c);
  c.one_of("hidden_act", {"silu", "swish"});
  if (type != "qwen2") c.need_truth("attention_bias", false);
  c.need_truth("mlp_bias", false);
  if (c.number("partial_rotary_factor", 1) != 1) c.refuse("partial_rotary_factor", "other than 1 is not supported");
  o = o.resolved();
  rope_frequencies(o.rope, o.head_width);  // throws where its numbers do not fit together
  HfModel m;
  m.options = option_values(fields(o), c);
  m.task = {{c.integer("max_position_embeddings", 2048)}, o.vocabulary};
  name_llama_tensors(o, m);
  return m;
}

HfExport llama_export(const std::vector<Field>& options, const TaskSpec& task) {
  LlamaOptions o;
  copy_options(options, fields(o));
  o = o.resolved();
  require(!(o.qk_norm && o.qkv_bias), ExitCode::kBadData,
          "model.qkv_bias with model.qk_norm: no architecture of transformers has both");
  HfExport out;
  std::string& family = out.model.family;
  std::string architecture = "LlamaForCausalLM";
  family = "llama";
  if (o.qk_norm) family = "qwen3", architecture = "Qwen3ForCausalLM";
  else if (o.qkv_bias) family = "qwen2", architecture = "Qwen2ForCausalLM";
  else if (o.window > 0 || o.width % o.heads != 0)  // LlamaConfig takes no width between multiples of the heads
    family = "mistral", architecture = "MistralForCausalLM";
  name_llama_tensors(o, out.model);
  JsonValue scaling = nullptr;
  if (o.rope.scaling == RopeScaling::kLinear)
    scaling = JsonText{
        json_line({{"rope_type", std::string("linear")}, {"type", std::string("linear")}, {"factor", o.rope.factor}})};
  if (o.rope.scaling == RopeScaling::kLlama3)
    scaling = JsonText{json_line({{"rope_type", std::string("llama3")},
                                  {"factor", o.rope.factor},
                                  {"low_freq_factor", o.rope.low_factor},
                                  {"high_freq_factor", o.rope.high_factor},
                                  {"original_max_position_embeddings", o.rope.context}})};
  out.config = {{"architectures", json_array(std::vector<JsonValue>{architecture})},
                {"model_type", family},
                {"vocab_size", o.vocabulary > 0 ? o.vocabulary : task.classes},
                {"max_position_embeddings", task.input[0]},
                {"hidden_size", o.width},
                {"intermediate_size", o.hidden},
                {"num_hidden_layers", o.layers},
                {"num_attention_heads", o.heads},
                {"num_key_value_heads", o.kv_heads},
                {"head_dim", o.head_width},
                {"hidden_act", std::string("silu")},
                {"rms_norm_eps", o.norm_eps},
                {"rope_theta", o.rope.theta},
                {"rope_scaling", scaling},
                {"attention_dropout", 0.0},
                {"tie_word_embeddings", o.tied}};
  const bool qwen = family == "qwen2" || family == "qwen3";
  if (family == "llama" || family == "qwen3") out.config.emplace_back("attention_bias", false);
  if (family == "llama") out.config.emplace_back("mlp_bias", false);
  if (family == "mistral")
    out.config.emplace_back("sliding_window", o.window > 0 ? JsonValue(o.window) : JsonValue(nullptr));
  if (qwen) {
    out.config.emplace_back("use_sliding_window", o.window > 0);
    out.config.emplace_back("sliding_window", o.window > 0 ? JsonValue(o.window) : JsonValue(nullptr));
    out.config.emplace_back("max_window_layers", o.window > 0 ? int64_t{0} : o.layers);
  }
  return out;
}

// What the weights were trained for may be longer than the data; they do not depend on it. transformers always writes
// rms_norm_eps.
void keep_positions(const HfConfig& source, JsonObject& config) {
  if (!source.has("rms_norm_eps")) return;
  for (auto& [key, value] : config)
    if (key == "max_position_embeddings")
      value = std::max(std::get<int64_t>(value), source.integer(key, std::get<int64_t>(value)));
}

}  // namespace

HfFamily llama_family() {
  return {.types = {"llama", "mistral", "qwen2", "qwen3"},
          .model = "llama",
          .read = llama_of,
          .write = llama_export,
          .keep = keep_positions};
}

}  // namespace lockstep
