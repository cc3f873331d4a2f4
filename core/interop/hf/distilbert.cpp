// DistilBERT with its head for hidden tokens, or the one for a text's label: our bert without segments.
#include "core/interop/hf/bert_parts.h"
#include "core/interop/hf/shared.h"

namespace lockstep {
namespace {

constexpr BertNames kDistilbertNames{.model = "distilbert",
                                     .block = "transformer.layer",
                                     .qkv = {"attention.q_lin", "attention.k_lin", "attention.v_lin"},
                                     .proj = "attention.out_lin",
                                     .ln1 = "sa_layer_norm",
                                     .up = "ffn.lin1",
                                     .down = "ffn.lin2",
                                     .ln2 = "output_layer_norm",
                                     .head_bias = "vocab_projector.bias",
                                     .transform = "vocab_transform",
                                     .transform_ln = "vocab_layer_norm",
                                     .decoder = "vocab_projector",
                                     .pooler = "pre_classifier",
                                     .head = "classifier"};

HfModel distilbert_of(const HfConfig& c) {
  BertOptions o;
  o.pooler = BertPooler::kRelu;
  o.layers = c.integer("n_layers", 6);
  o.heads = c.integer("n_heads", 12);
  o.width = c.integer("dim", 768);
  o.vocabulary = c.integer("vocab_size", 30522);
  o.positions = c.integer("max_position_embeddings", 512);
  o.gelu = gelu_of(c, "activation");
  if (c.integer("hidden_dim", 3072) != 4 * o.width) c.refuse("hidden_dim", "other than 4 dim is not supported");
  c.need_truth("tie_word_embeddings", true);
  HfModel m;
  m.options = option_values(fields(o), c, {"dropout"});
  m.task = {{o.positions}, o.vocabulary};
  name_bert_tensors(o, {}, kDistilbertNames, m);
  return m;
}

HfExport distilbert_export(const std::vector<Field>& options, const TaskSpec& task) {
  BertOptions o;
  copy_options(options, fields(o));
  set_extents(o, task);
  HfExport out;
  out.model.family = "distilbert";
  out.chosen_by = "model.pooler: relu";
  out.model.options = values_of(fields(o));
  const bool labels = task.vocabulary > 0;
  name_bert_tensors(o, {!labels, labels}, kDistilbertNames, out.model);
  const std::string architecture = labels ? "DistilBertForSequenceClassification" : "DistilBertForMaskedLM";
  out.config = {{"architectures", json_array(std::vector<JsonValue>{architecture})},
                {"model_type", std::string("distilbert")},
                {"vocab_size", o.vocabulary},
                {"max_position_embeddings", o.positions},
                {"dim", o.width},
                {"hidden_dim", 4 * o.width},
                {"n_layers", o.layers},
                {"n_heads", o.heads},
                {"activation", gelu_text(o.gelu)},
                {"dropout", o.dropout},
                {"attention_dropout", 0.0},
                {"seq_classif_dropout", o.dropout},
                {"sinusoidal_pos_embds", false},
                {"pad_token_id", nullptr},
                {"tie_word_embeddings", true}};
  if (labels) add_labels(out.config, task.classes);
  return out;
}

}  // namespace

HfFamily distilbert_family() {
  return {.types = {"distilbert"},
          .model = "bert",
          .read = distilbert_of,
          .write = distilbert_export,
          .holds = is_distilbert,
          .use = HfUse::kLabels,
          .peft = {.keeps_ties = false}};
}

}  // namespace lockstep
