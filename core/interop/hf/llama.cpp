// Llama 2 and 3, Mistral, Qwen2, Qwen3, OLMo 2, SmolLM3, Phi-3: one model of ours.
#include "core/interop/hf/llama_parts.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace lockstep {

bool has_norms_on_both_sides(const std::vector<Field>& options) {
  LlamaOptions o;
  copy_options(options, fields(o));
  return o.norms == BranchNorm::kBoth;
}

bool has_layer_norms(const std::vector<Field>& options) {
  LlamaOptions o;
  copy_options(options, fields(o));
  return o.norm == NormForm::kLayer;
}

LlamaOptions exported_llama(const std::vector<Field>& options, const TaskSpec& task) {
  LlamaOptions o;
  copy_options(options, fields(o));
  o = o.resolved();
  rope_frequencies(o.rope, o.rope_width, 0);  // throws where its numbers do not fit together
  if (o.vocabulary == 0) o.vocabulary = task.classes;
  return o;
}

void name_llama_tensors(const LlamaOptions& o, HfModel& m) {
  const HfLayers layers{m.tensors};
  layers.weight("wte", {"model.embed_tokens"});
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string ours = str("blocks.", i, "."), theirs = str("model.layers.", i, ".");
    const auto linear = [&](const std::string& name, const std::string& from, bool bias) {
      if (bias) layers.both(ours + name, {theirs + from});
      else layers.weight(ours + name, {theirs + from});
    };
    const bool after = o.norms == BranchNorm::kAfter, both = o.norms == BranchNorm::kBoth;
    layers.weight(ours + "attention.norm", {theirs + (after ? "post_attention_layernorm" : "input_layernorm")});
    if (o.fused) linear("attention.qkv", "self_attn.qkv_proj", o.qkv_bias);
    for (const char* which : {"q", "k", "v"})
      if (!o.fused) linear(str("attention.", which), str("self_attn.", which, "_proj"), o.qkv_bias);
    if (o.qk_norm)
      for (const char* which : {"q_norm", "k_norm"})
        layers.weight(str(ours, "attention.", which), {str(theirs, "self_attn.", which)});
    linear("attention.proj", "self_attn.o_proj", o.proj_bias);
    if (both) layers.weight(ours + "attention.post_norm", {theirs + "post_attention_layernorm"});
    layers.weight(ours + "norm", {theirs + (after  ? "post_feedforward_layernorm"
                                            : both ? "pre_feedforward_layernorm"
                                                   : "post_attention_layernorm")});
    if (both) layers.weight(ours + "post_norm", {theirs + "post_feedforward_layernorm"});
    if (o.fused) linear("gate_up", "mlp.gate_up_proj", o.mlp_bias);
    for (const char* which : {"gate", "up", "down"})
      if (!o.fused || std::string_view(which) == "down") linear(which, str("mlp.", which, "_proj"), o.mlp_bias);
  }
  layers.weight("norm", {"model.norm"});
  m.prefix = "model.";
  if (o.tied) m.copies = {{"lm_head.weight", "model.embed_tokens.weight"}};
  else layers.weight("head", {"lm_head"});
  m.ignored = {"*.rotary_emb.inv_freq"};
}

int64_t part_of_head(const HfConfig& c, const char* key, int64_t head_width, double factor) {
  if (!(factor > 0 && factor <= 1)) c.refuse(key, "is not in (0, 1]");
  const auto width = static_cast<int64_t>(static_cast<double>(head_width) * factor);
  if (width < 2 || width % 2 != 0)
    c.refuse(key, str("turns ", width, " features of a head of ", head_width, ": it must be an even number above 0"));
  return width;
}

double rotary_part(const LlamaOptions& o) {
  const auto head = static_cast<double>(o.head_width);
  double part = static_cast<double>(o.rope_width) / head;
  while (static_cast<int64_t>(head * part) < o.rope_width) part = std::nextafter(part, 1.0);
  return part;
}

void read_rope_scaling(const HfConfig& how, int64_t longest, RopeOptions& o, bool partial) {
  const std::string type =
      how.one_of(how.has("rope_type") ? "rope_type" : "type", {"default", "linear", "llama3", "yarn"});
  if (!partial && how.number("partial_rotary_factor", 1) != 1)
    how.refuse("partial_rotary_factor", "other than 1 is not supported");
  if (type == "default") return;
  o.factor = how.number("factor");
  o.scaling = RopeScaling::kLinear;
  if (type == "linear") return;
  o.context = how.integer("original_max_position_embeddings", longest);
  if (type == "yarn") {
    o.scaling = RopeScaling::kYarn;
    for (const char* key : {"mscale", "mscale_all_dim"})
      if (how.has(key)) how.refuse(key, "is not supported: attention_factor says what it stands for");
    o.beta_fast = how.number("beta_fast", o.beta_fast), o.beta_slow = how.number("beta_slow", o.beta_slow);
    o.whole_pairs = how.truth("truncate", true);
    o.attention = how.number("attention_factor", 0);
    if (how.has("attention_factor") && o.attention <= 0) how.refuse("attention_factor", "must be above 0");
    return;
  }
  o.scaling = RopeScaling::kLlama3;
  o.low_factor = how.number("low_freq_factor");
  o.high_factor = how.number("high_freq_factor");
}

HfModel llama_model(const LlamaOptions& given, const HfConfig& c, int64_t longest) {
  if (given.rope_width == 0 && c.number("partial_rotary_factor", 1) != 1)
    c.refuse("partial_rotary_factor", "other than 1 is not supported");
  LlamaOptions o = given.resolved();
  rope_frequencies(o.rope, o.rope_width, 0);  // throws where its numbers do not fit together
  HfModel m;
  m.options = option_values(fields(o), c, {"rope_by_length"});  // which shapes no tensor: a run may choose
  longest = c.integer("max_position_embeddings", longest);
  // Longer texts have other factors, which shorter ones do worse with: only data of such a length asks for them.
  if (o.rope.scaling == RopeScaling::kLongrope) m.longest = std::exchange(longest, std::min(longest, o.rope.context));
  m.task = {{longest}, o.vocabulary};
  name_llama_tensors(o, m);
  return m;
}

JsonValue rope_scaling_of(const RopeOptions& o) {
  if (o.scaling == RopeScaling::kLinear)
    return JsonText{
        json_line({{"rope_type", std::string("linear")}, {"type", std::string("linear")}, {"factor", o.factor}})};
  if (o.scaling == RopeScaling::kLlama3)
    return JsonText{json_line({{"rope_type", std::string("llama3")},
                               {"factor", o.factor},
                               {"low_freq_factor", o.low_factor},
                               {"high_freq_factor", o.high_factor},
                               {"original_max_position_embeddings", o.context}})};
  if (o.scaling == RopeScaling::kYarn) {
    JsonObject out{{"rope_type", std::string("yarn")},
                   {"type", std::string("yarn")},
                   {"factor", o.factor},
                   {"beta_fast", o.beta_fast},
                   {"beta_slow", o.beta_slow},
                   {"truncate", o.whole_pairs},
                   {"original_max_position_embeddings", o.context}};
    if (o.attention > 0) out.emplace_back("attention_factor", o.attention);
    return JsonText{json_line(out)};
  }
  return nullptr;
}

JsonObject llama_config(const LlamaOptions& o, const TaskSpec& task, const std::string& architecture,
                        const std::string& family) {
  return {{"architectures", json_array(std::vector<JsonValue>{architecture})},
          {"model_type", family},
          {"vocab_size", o.vocabulary},
          {"max_position_embeddings", task.input[0]},
          {"hidden_size", o.width},
          {"intermediate_size", o.hidden},
          {"num_hidden_layers", o.layers},
          {"num_attention_heads", o.heads},
          {"num_key_value_heads", o.kv_heads},
          {"head_dim", o.head_width},
          {"rms_norm_eps", o.norm_eps},
          {"rope_theta", o.rope.theta},
          {"rope_scaling", rope_scaling_of(o.rope)},
          {"attention_dropout", 0.0},
          {"tie_word_embeddings", o.tied}};
}

void add_token_ids(JsonObject& config) {
  for (const char* key : {"pad_token_id", "bos_token_id", "eos_token_id"}) config.emplace_back(key, nullptr);
}

namespace {

// Of transformers 4 "rope_theta" beside "rope_scaling", of 5 "rope_parameters".
RopeOptions rope_of(const HfConfig& c, double theta) {
  RopeOptions o;
  const auto parameters = c.object("rope_parameters"), scaling = c.object("rope_scaling");
  o.theta = c.number("rope_theta", theta);
  if (parameters && scaling) c.refuse("rope_scaling", "beside rope_parameters is not supported");
  const auto& how = parameters ? parameters : scaling;
  if (!how) return o;
  o.theta = how->number("rope_theta", o.theta);
  for (const char* kind : {"full_attention", "sliding_attention"})
    if (how->has(kind)) how->refuse(kind, "is not supported: one rotary embedding for all layers is");
  read_rope_scaling(*how, c.integer("max_position_embeddings", o.context), o);
  return o;
}

// Phi-3's are turned whole or in part, and scaled by longrope alone, which was once called su and yarn. Its context
// stands beside, and what it is stretched to is the longest input where no factor is given.
void read_phi_rope(const HfConfig& c, LlamaOptions& o) {
  const auto parameters = c.object("rope_parameters"), scaling = c.object("rope_scaling");
  if (parameters && scaling) c.refuse("rope_scaling", "beside rope_parameters is not supported");
  const auto& how = parameters ? parameters : scaling;
  o.rope.theta = c.number("rope_theta", o.rope.theta);
  double part = c.number("partial_rotary_factor", 1);
  if (how) o.rope.theta = how->number("rope_theta", o.rope.theta), part = how->number("partial_rotary_factor", part);
  const int64_t head = o.head_width > 0 ? o.head_width : o.width / o.heads;
  if (part != 1)
    o.rope_width =
        part_of_head(how && how->has("partial_rotary_factor") ? *how : c, "partial_rotary_factor", head, part);
  if (!how ||
      how->one_of(how->has("rope_type") ? "rope_type" : "type", {"default", "longrope", "su", "yarn"}) == "default")
    return;
  o.rope.scaling = RopeScaling::kLongrope;
  o.rope.context = c.integer("original_max_position_embeddings", 4096);
  if (o.rope.context < 2) c.refuse("original_max_position_embeddings", "must be above 1");
  const auto stretched = static_cast<double>(c.integer("max_position_embeddings", 4096));
  o.rope.factor = std::max(1.0, how->number("factor", stretched / static_cast<double>(o.rope.context)));
  o.rope.attention = how->number("attention_factor", 0);
  if (how->has("attention_factor") && o.rope.attention <= 0) how->refuse("attention_factor", "must be above 0");
  o.rope.short_factors = how->numbers("short_factor"), o.rope.long_factors = how->numbers("long_factor");
  const int64_t pairs = (o.rope_width > 0 ? o.rope_width : head) / 2;
  for (const auto& [key, factors] :
       {std::pair{"short_factor", &o.rope.short_factors}, {"long_factor", &o.rope.long_factors}})
    if (std::ssize(*factors) != pairs)
      how->refuse(key, str("has ", factors->size(), " numbers for the ", pairs, " pairs of a head that are turned"));
}

// Fills in the window, and the first of the layers that have it: those from there to the last. Refuses other layouts.
void read_window(const HfConfig& c, const std::string& type, LlamaOptions& o) {
  if (type == "llama" || type == "olmo2") return;
  const bool mistral = type == "mistral" || type == "phi3";
  int64_t window = c.is_null("sliding_window") || (!mistral && !c.truth("use_sliding_window", false))
                       ? 0
                       : c.integer("sliding_window", type == "smollm3" || type == "phi3" ? 0 : 4096);
  int64_t from = mistral ? 0 : c.integer("max_window_layers", 28);
  const auto types = c.texts("layer_types");
  if (mistral) {  // whose windows do not depend on it
    const char* const all = window > 0 ? "sliding_attention" : "full_attention";
    if (std::any_of(types.begin(), types.end(), [&](auto& t) { return t != all; }))
      c.refuse("layer_types", str("is not supported: with this sliding_window all layers are ", all));
    o.window = window;
    return;
  }
  if (type == "smollm3" && window > 0 && types.empty())
    c.refuse("use_sliding_window", "is not supported without layer_types");
  if (!types.empty()) {
    from = std::find(types.begin(), types.end(), "sliding_attention") - types.begin();
    const bool fits = std::ssize(types) == o.layers &&
                      std::all_of(types.begin(), types.begin() + from, [](auto& t) { return t == "full_attention"; }) &&
                      std::all_of(types.begin() + from, types.end(), [](auto& t) { return t == "sliding_attention"; });
    if (!fits)
      c.refuse("layer_types",
               "is not supported: it must be full_attention in the first layers, and sliding_attention in the rest");
    // Qwen's has no window without use_sliding_window.
    if (from < o.layers && window == 0 && type == "smollm3") window = c.integer("sliding_window");
    if (from < o.layers && window == 0)
      c.refuse("layer_types", "has sliding_attention, without use_sliding_window: true and sliding_window");
  }
  if (window == 0 || from >= o.layers) return;
  o.window = window;
  o.window_from = from;
}

// SmolLM3's no_rope_layers has 1 for layers with a rotary embedding and 0 for those without.
int64_t no_rope_every(const HfConfig& c, int64_t layers) {
  const auto given = c.integers("no_rope_layers", std::vector<int64_t>());
  if (given.empty()) return c.integer("no_rope_layer_interval", 4);
  const int64_t every = std::find(given.begin(), given.end(), 0) - given.begin() + 1;
  bool fits = std::ssize(given) == layers;
  for (int64_t i = 0; fits && i < layers; ++i) fits = given[static_cast<size_t>(i)] == ((i + 1) % every != 0 ? 1 : 0);
  if (!fits)
    c.refuse("no_rope_layers",
             "is not supported: it must have one entry for each layer, 0 in every n-th layer and 1 in the others, or 1 "
             "in all");
  return every > layers ? 0 : every;
}

HfModel llama_of(const HfConfig& c) {
  const std::string type = c.text("model_type");
  LlamaOptions o;
  o.layers = c.integer("num_hidden_layers");
  o.heads = c.integer("num_attention_heads");
  o.width = c.integer("hidden_size");
  const bool olmo = type == "olmo2", smol = type == "smollm3", phi = type == "phi3";
  o.kv_heads = c.integer("num_key_value_heads", c.is_null("num_key_value_heads") ? o.heads
                                                : type == "mistral"              ? 8
                                                : type == "llama" || olmo || phi ? o.heads
                                                : smol                           ? 4
                                                                                 : 32);
  if (o.heads < 1 || o.kv_heads < 1) c.refuse("num_attention_heads", "and num_key_value_heads must be above 0");
  o.head_width = c.integer("head_dim", type == "qwen3" ? 128 : 0);
  o.hidden = c.integer("intermediate_size");
  if (o.hidden < 1) c.refuse("intermediate_size", "must be above 0");
  read_window(c, type, o);
  if (smol) o.no_rope_every = no_rope_every(c, o.layers);
  o.norm_eps = c.number("rms_norm_eps", olmo || phi ? 1e-5 : 1e-6);
  o.tied = c.truth("tie_word_embeddings", smol);
  o.qk_norm = type == "qwen3" || olmo;
  o.qk_norm_whole = olmo;
  if (olmo) o.norms = BranchNorm::kAfter;
  o.fused = phi;
  if (type == "qwen2") o.qkv_bias = true;
  else if (type == "mistral" || phi) c.need_truth("attention_bias", false);
  else o.qkv_bias = o.proj_bias = c.truth("attention_bias", false);
  if (type == "llama" || smol) o.mlp_bias = c.truth("mlp_bias", false);
  else c.need_truth("mlp_bias", false);
  o.vocabulary = c.integer("vocab_size");
  if (phi) read_phi_rope(c, o);
  else o.rope = rope_of(c, smol ? 2e6 : RopeOptions().theta);
  c.one_of("hidden_act", {"silu", "swish"});
  return llama_model(o, c, type == "mistral" ? 131072 : type.starts_with("qwen") || smol ? 32768 : phi ? 4096 : 2048);
}

// transformers takes the factor from the two lengths, and version 4 no other key of "rope_scaling" than these three.
void write_longrope(const RopeOptions& o, JsonObject& config) {
  const auto list = [](const std::vector<double>& v) { return json_array(std::vector<JsonValue>(v.begin(), v.end())); };
  JsonObject scaling{{"type", std::string("longrope")},
                     {"short_factor", list(o.short_factors)},
                     {"long_factor", list(o.long_factors)}};
  const double stretched = o.factor * static_cast<double>(o.context);
  for (auto& [key, value] : config)
    if (key == "max_position_embeddings") {
      if (stretched == std::nearbyint(stretched) && stretched / static_cast<double>(o.context) == o.factor &&
          static_cast<double>(std::get<int64_t>(value)) <= stretched)
        value = static_cast<int64_t>(stretched);
      else scaling.emplace_back("factor", o.factor);
    }
  if (o.attention > 0) scaling.emplace_back("attention_factor", o.attention);
  for (auto& [key, value] : config)
    if (key == "rope_scaling") value = JsonText{json_line(scaling)};
  config.emplace_back("original_max_position_embeddings", o.context);
}

HfExport llama_export(const std::vector<Field>& options, const TaskSpec& task) {
  const LlamaOptions o = exported_llama(options, task);
  const bool after = o.norms == BranchNorm::kAfter;
  HfExport out;
  std::string& family = out.model.family;
  std::string architecture = "LlamaForCausalLM";
  family = "llama";
  const auto choose = [&](const char* its_family, const char* its_architecture, const char* by) {
    family = its_family, architecture = its_architecture, out.chosen_by = by;
  };
  if (o.fused) choose("phi3", "Phi3ForCausalLM", "model.fused: true");
  else if (after) choose("olmo2", "Olmo2ForCausalLM", "model.norms: after");
  else if (o.no_rope_every > 0) choose("smollm3", "SmolLM3ForCausalLM", "model.no_rope_every");
  else if (o.qk_norm) choose("qwen3", "Qwen3ForCausalLM", "model.qk_norm: true");
  else if (o.window_from > 0) choose("qwen2", "Qwen2ForCausalLM", "model.window_from");
  else if (o.qkv_bias && !o.proj_bias) choose("qwen2", "Qwen2ForCausalLM", "model.qkv_bias: true");
  else if (o.window > 0) choose("mistral", "MistralForCausalLM", "model.window");
  else if (o.width % o.heads != 0)  // LlamaConfig takes no such width
    choose("mistral", "MistralForCausalLM", "model.heads that do not divide model.width");
  LlamaOptions written = o;
  if (o.no_rope_every > o.layers) written.no_rope_every = 0;  // no layer has this number
  out.model.options = values_of(fields(written));
  name_llama_tensors(o, out.model);
  out.config = llama_config(o, task, architecture, family);
  const bool longrope = o.fused && o.rope.scaling == RopeScaling::kLongrope;
  if (o.fused)  // whose "yarn" is another name of longrope
    for (auto& [key, value] : out.config)
      if (key == "rope_scaling") value = nullptr;
  out.config.emplace_back("hidden_act", std::string("silu"));
  const bool qwen = family == "qwen2" || family == "qwen3", smol = family == "smollm3";
  if (family != "mistral" && family != "qwen2" && family != "phi3")
    out.config.emplace_back("attention_bias", o.qkv_bias && o.proj_bias);
  if (family == "llama" || smol) out.config.emplace_back("mlp_bias", o.mlp_bias);
  if (family == "mistral" || family == "phi3")
    out.config.emplace_back("sliding_window", o.window > 0 ? JsonValue(o.window) : JsonValue(nullptr));
  if (qwen || smol) {
    out.config.emplace_back("use_sliding_window", o.window > 0);
    out.config.emplace_back("sliding_window", o.window > 0 ? JsonValue(o.window) : JsonValue(nullptr));
  }
  if (qwen) out.config.emplace_back("max_window_layers", o.window > 0 ? o.window_from : o.layers);
  if (smol || (qwen && o.window_from > 0)) {
    std::vector<JsonValue> types, rope;
    for (int64_t i = 0; i < o.layers; ++i) {
      types.emplace_back(std::string(o.window > 0 && i >= o.window_from ? "sliding_attention" : "full_attention"));
      rope.emplace_back(int64_t{o.has_rope(i)});
    }
    out.config.emplace_back("layer_types", json_array(types));
    if (smol) out.config.emplace_back("no_rope_layers", json_array(rope));
    if (smol) out.config.emplace_back("no_rope_layer_interval", o.no_rope_every);
  }
  if (o.fused && o.rope_width != o.head_width) out.config.emplace_back("partial_rotary_factor", rotary_part(o));
  if (longrope) write_longrope(o.rope, out.config);
  if (after || smol || o.fused) add_token_ids(out.config);
  return out;
}

}  // namespace

void keep_llama(const HfConfig& source, JsonObject& config) {
  if (!source.has("max_position_embeddings")) return;
  for (auto& [key, value] : config)
    if (key == "max_position_embeddings")
      value = std::max(std::get<int64_t>(value), source.integer(key, std::get<int64_t>(value)));
}

HfFamily llama_family() {
  return {.types = {"llama", "mistral", "qwen2", "qwen3", "olmo2", "smollm3", "phi3"},
          .model = "llama",
          .read = llama_of,
          .write = llama_export,
          .holds =
              [](const std::vector<Field>& options) {
                return !has_norms_on_both_sides(options) && !has_layer_norms(options);
              },
          .keep = keep_llama};
}

}  // namespace lockstep
