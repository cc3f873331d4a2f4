// GPT-2. Its linear layers hold weights as [in, out].
#include "core/interop/hf/shared.h"
#include "core/models/gpt.h"

namespace lockstep {
namespace {

constexpr double kGpt2Epsilon = 1e-5;  // of our norms

void name_gpt2_tensors(const GptOptions& o, HfModel& m) {
  const HfLayers layers{m.tensors};
  constexpr auto kTransposed = HfTensor::Layout::kTransposed;
  layers.weight("wte", {"transformer.wte"});
  layers.weight("wpe", {"transformer.wpe"});
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string ours = str("blocks.", i, "."), theirs = str("transformer.h.", i, ".");
    layers.both(ours + "ln1", {theirs + "ln_1"});
    layers.both(ours + "ln2", {theirs + "ln_2"});
    layers.both(ours + "qkv", {theirs + "attn.c_attn"}, kTransposed);
    layers.both(ours + "proj", {theirs + "attn.c_proj"}, kTransposed);
    layers.both(ours + "up", {theirs + "mlp.c_fc"}, kTransposed);
    layers.both(ours + "down", {theirs + "mlp.c_proj"}, kTransposed);
  }
  layers.both("ln", {"transformer.ln_f"});
  m.prefix = "transformer.";
  m.copies = {{"lm_head.weight", "transformer.wte.weight"}};
  m.ignored = {"*.attn.bias", "*.attn.masked_bias"};  // masks
}

HfModel gpt2_of(const HfConfig& c) {
  GptOptions o;
  o.layers = c.integer("n_layer", 12);
  o.heads = c.integer("n_head", 12);
  o.width = c.integer("n_embd", 768);
  o.vocabulary = c.integer("vocab_size", 50257);
  o.positions = c.integer("n_positions", 1024);
  c.one_of("activation_function", {"gelu_new", "gelu_pytorch_tanh"});
  if (c.integer("n_inner", 4 * o.width) != 4 * o.width) c.refuse("n_inner", "other than 4 n_embd is not supported");
  if (c.number("layer_norm_epsilon", kGpt2Epsilon) != kGpt2Epsilon)
    c.refuse("layer_norm_epsilon", str("other than ", kGpt2Epsilon, " is not supported"));
  c.need_truth("scale_attn_weights", true);
  c.need_truth("scale_attn_by_inverse_layer_idx", false);
  c.need_truth("tie_word_embeddings", true);
  HfModel m;
  m.options = option_values(fields(o), c, {"dropout"});
  m.task = {{o.positions}, o.vocabulary};
  name_gpt2_tensors(o, m);
  return m;
}

HfExport gpt2_export(const std::vector<Field>& options, const TaskSpec& task) {
  GptOptions o;
  copy_options(options, fields(o));
  if (o.vocabulary == 0) o.vocabulary = task.classes;
  if (o.positions == 0) o.positions = task.input[0];
  HfExport out;
  out.model.family = "gpt2";
  out.model.options = values_of(fields(o));
  name_gpt2_tensors(o, out.model);
  out.config = {{"architectures", json_array(std::vector<JsonValue>{std::string("GPT2LMHeadModel")})},
                {"model_type", std::string("gpt2")},
                {"vocab_size", o.vocabulary},
                {"n_positions", o.positions},
                {"n_ctx", o.positions},
                {"n_embd", o.width},
                {"n_layer", o.layers},
                {"n_head", o.heads},
                {"n_inner", nullptr},
                {"activation_function", std::string("gelu_new")},
                {"layer_norm_epsilon", kGpt2Epsilon},
                {"resid_pdrop", o.dropout},
                {"embd_pdrop", o.dropout},
                {"attn_pdrop", 0.0},
                {"tie_word_embeddings", true}};
  return out;
}

}  // namespace

HfFamily gpt2_family() {
  return {.types = {"gpt2"}, .model = "gpt", .read = gpt2_of, .write = gpt2_export, .peft = {.fan_in_fan_out = true}};
}

}  // namespace lockstep
