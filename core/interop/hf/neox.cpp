// GPT-NeoX and Pythia: our llama with layer norms, biases, hidden layers without a gate, branches side by side, and
// rotary positions of a part of each head.
#include "core/interop/hf/llama_parts.h"

namespace lockstep {
namespace {

void name_neox_tensors(const LlamaOptions& o, HfModel& m) {
  const HfLayers layers{m.tensors};
  layers.weight("wte", {"gpt_neox.embed_in"});
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string ours = str("blocks.", i, "."), theirs = str("gpt_neox.layers.", i, ".");
    const auto linear = [&](const char* name, const char* from, bool bias) {
      if (bias) layers.both(ours + name, {theirs + from});
      else layers.weight(ours + name, {theirs + from});
    };
    layers.both(ours + "attention.norm", {theirs + "input_layernorm"});
    linear("attention.qkv", "attention.query_key_value", o.qkv_bias);
    linear("attention.proj", "attention.dense", o.proj_bias);
    layers.both(ours + "norm", {theirs + "post_attention_layernorm"});
    linear("up", "mlp.dense_h_to_4h", true);
    linear("down", "mlp.dense_4h_to_h", true);
  }
  layers.both("norm", {"gpt_neox.final_layer_norm"});
  m.prefix = "gpt_neox.";
  if (o.tied) m.copies = {{"embed_out.weight", "gpt_neox.embed_in.weight"}};
  else layers.weight("head", {"embed_out"});
  m.ignored = {"*.attention.bias", "*.attention.masked_bias", "*.rotary_emb.inv_freq"};  // masks and frequencies
}

// Of transformers 4 rotary_emb_base and rotary_pct beside rope_scaling, of 5 rope_parameters.
void read_neox_rope(const HfConfig& c, LlamaOptions& o) {
  const auto parameters = c.object("rope_parameters"), scaling = c.object("rope_scaling");
  if (parameters && scaling) c.refuse("rope_scaling", "beside rope_parameters is not supported");
  const auto& how = parameters ? parameters : scaling;
  double part = c.number("rotary_pct", 0.25);
  o.rope.theta = c.number("rotary_emb_base", 10000);
  if (how) {
    o.rope.theta = how->number("rope_theta", o.rope.theta), part = how->number("partial_rotary_factor", part);
    read_rope_scaling(*how, c.integer("max_position_embeddings", 2048), o.rope, true);
  }
  const bool within = how && how->has("partial_rotary_factor");
  o.rope_width =
      part_of_head(within ? *how : c, within ? "partial_rotary_factor" : "rotary_pct", o.width / o.heads, part);
}

HfModel neox_of(const HfConfig& c) {
  LlamaOptions o;
  o.layers = c.integer("num_hidden_layers", 44);
  o.heads = c.integer("num_attention_heads", 64);
  o.width = c.integer("hidden_size", 6144);
  o.hidden = c.integer("intermediate_size", 24576);
  o.vocabulary = c.integer("vocab_size", 50432);
  if (o.heads < 1 || o.width % o.heads != 0) c.refuse("num_attention_heads", str("must divide hidden_size, ", o.width));
  if (o.hidden < 1) c.refuse("intermediate_size", "must be above 0");
  o.norm = NormForm::kLayer;
  o.norm_eps = c.number("layer_norm_eps", 1e-5);
  o.gated = false;
  o.gate = gelu_of(c) == GeluForm::kErf ? GateForm::kGeluErf : GateForm::kGelu;
  o.parallel = c.truth("use_parallel_residual", true);
  o.fused = o.fused_by_head = o.mlp_bias = true;
  o.qkv_bias = o.proj_bias = c.truth("attention_bias", true);
  o.tied = c.truth("tie_word_embeddings", false);
  c.need_truth("is_decoder", false);
  read_neox_rope(c, o);
  HfModel m = llama_model(o, c, 2048);
  m.tensors.clear(), m.copies.clear();
  name_neox_tensors(o, m);
  return m;
}

HfExport neox_export(const std::vector<Field>& options, const TaskSpec& task) {
  LlamaOptions o = exported_llama(options, task);
  require(o.head_width * o.heads == o.width, ExitCode::kBadData, "model.head_width: ", o.head_width, " times ", o.heads,
          " of model.heads is not model.width: ", o.width,
          ": gpt_neox of transformers, the architecture for model.norm: layer, has no other heads");
  HfExport out;
  out.model.family = "gpt_neox";
  out.chosen_by = "model.norm: layer";
  out.model.options = values_of(fields(o));
  name_neox_tensors(o, out.model);
  out.config = {{"architectures", json_array(std::vector<JsonValue>{std::string("GPTNeoXForCausalLM")})},
                {"model_type", out.model.family},
                {"vocab_size", o.vocabulary},
                {"max_position_embeddings", task.input[0]},
                {"hidden_size", o.width},
                {"intermediate_size", o.hidden},
                {"num_hidden_layers", o.layers},
                {"num_attention_heads", o.heads},
                {"hidden_act", gelu_text(o.gate == GateForm::kGeluErf ? GeluForm::kErf : GeluForm::kTanh)},
                {"layer_norm_eps", o.norm_eps},
                {"rotary_emb_base", o.rope.theta},
                {"rotary_pct", rotary_part(o)},
                {"rope_scaling", rope_scaling_of(o.rope)},
                {"use_parallel_residual", o.parallel},
                {"attention_bias", o.qkv_bias || o.proj_bias},
                {"attention_dropout", 0.0},
                {"hidden_dropout", 0.0},
                {"tie_word_embeddings", o.tied}};
  add_token_ids(out.config);
  return out;
}

}  // namespace

HfFamily neox_family() {
  return {.types = {"gpt_neox"},
          .model = "llama",
          .read = neox_of,
          .write = neox_export,
          .holds = has_layer_norms,
          .keep = keep_llama};
}

}  // namespace lockstep
