// ViT with its classifier.
#include "core/models/vit.h"
#include "core/interop/hf/shared.h"

namespace lockstep {
namespace {

void name_vit_tensors(const VitOptions& o, HfModel& m) {
  const HfLayers layers{m.tensors};
  m.tensors.push_back({"parameters/class_token", {"vit.embeddings.cls_token"}});
  layers.both("patches", {"vit.embeddings.patch_embeddings.projection"}, HfTensor::Layout::kChannelsLast);
  m.tensors.push_back(
      {.name = "parameters/positions.weight", .from = {"vit.embeddings.position_embeddings"}, .one_in_front = true});
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string ours = str("blocks.", i, "."), theirs = str("vit.encoder.layer.", i, ".");
    const std::string self = theirs + "attention.attention.";
    layers.both(ours + "ln1", {theirs + "layernorm_before"});
    layers.both(ours + "qkv", {self + "query", self + "key", self + "value"});
    layers.both(ours + "proj", {theirs + "attention.output.dense"});
    layers.both(ours + "ln2", {theirs + "layernorm_after"});
    layers.both(ours + "up", {theirs + "intermediate.dense"});
    layers.both(ours + "down", {theirs + "output.dense"});
  }
  layers.both("ln", {"vit.layernorm"});
  layers.both("head", {"classifier"});
  m.ignored = {"vit.pooler.*"};
}

HfModel vit_of(const HfConfig& c) {
  VitOptions o;
  o.patch = c.integer("patch_size", 16);
  o.layers = c.integer("num_hidden_layers", 12);
  o.heads = c.integer("num_attention_heads", 12);
  o.width = c.integer("hidden_size", 768);
  o.gelu = gelu_of(c);
  o.norm_eps = c.number("layer_norm_eps", 1e-12);
  need_four_widths(c, o.width);
  c.need_truth("qkv_bias", true);
  HfModel m;
  m.options = option_values(fields(o), c, {"dropout"});
  m.task = {image_of(c), labels_of(c)};
  name_vit_tensors(o, m);
  return m;
}

HfExport vit_export(const std::vector<Field>& options, const TaskSpec& task) {
  VitOptions o;
  copy_options(options, fields(o));
  const Shape& image = task.input;
  HfExport out;
  out.model.family = "vit";
  out.model.options = values_of(fields(o));
  name_vit_tensors(o, out.model);
  const JsonValue size =
      image[0] == image[1] ? JsonValue(image[0]) : JsonValue(json_array(std::vector<JsonValue>{image[0], image[1]}));
  out.config = {{"architectures", json_array(std::vector<JsonValue>{std::string("ViTForImageClassification")})},
                {"model_type", std::string("vit")},
                {"image_size", size},
                {"num_channels", image[2]},
                {"patch_size", o.patch},
                {"hidden_size", o.width},
                {"intermediate_size", 4 * o.width},
                {"num_hidden_layers", o.layers},
                {"num_attention_heads", o.heads},
                {"hidden_act", gelu_text(o.gelu)},
                {"layer_norm_eps", o.norm_eps},
                {"hidden_dropout_prob", o.dropout},
                {"attention_probs_dropout_prob", 0.0},
                {"qkv_bias", true}};
  add_labels(out.config, task.classes);
  return out;
}

}  // namespace

HfFamily vit_family() {
  return {.types = {"vit"},
          .model = "vit",
          .read = vit_of,
          .write = vit_export,
          .use = HfUse::kImages,
          .peft = {.modules = {{"vit.encoder.layer.", "vit.layers."},
                               {"attention.attention.query.", "attention.q_proj."},
                               {"attention.attention.key.", "attention.k_proj."},
                               {"attention.attention.value.", "attention.v_proj."},
                               {"attention.output.dense.", "attention.o_proj."},
                               {"intermediate.dense.", "mlp.fc1."},
                               {"output.dense.", "mlp.fc2."}}}};
}

}  // namespace lockstep
