// DistilBERT with its head for hidden tokens, or the one for a text's label: our bert without segments.
#include "core/interop/hf/bert_parts.h"
#include "core/interop/hf/shared.h"
#include "core/models/bert.h"

namespace lockstep {
namespace {

// `tokens`, `labels`: which heads' tensors are named: of a folder both, as the data decides which one a model has.
void name_distilbert_tensors(const BertOptions& o, bool tokens, bool labels, HfModel& m) {
  const HfLayers layers{m.tensors};
  layers.weight("tokens", {"distilbert.embeddings.word_embeddings"});
  layers.weight("positions", {"distilbert.embeddings.position_embeddings"});
  layers.both("ln", {"distilbert.embeddings.LayerNorm"});
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string ours = str("blocks.", i, "."), theirs = str("distilbert.transformer.layer.", i, ".");
    const std::string self = theirs + "attention.";
    layers.both(ours + "qkv", {self + "q_lin", self + "k_lin", self + "v_lin"});
    layers.both(ours + "proj", {self + "out_lin"});
    layers.both(ours + "ln1", {theirs + "sa_layer_norm"});
    layers.both(ours + "up", {theirs + "ffn.lin1"});
    layers.both(ours + "down", {theirs + "ffn.lin2"});
    layers.both(ours + "ln2", {theirs + "output_layer_norm"});
  }
  const size_t body = m.tensors.size();
  if (tokens) {
    m.tensors.push_back({"parameters/head_bias", {"vocab_projector.bias"}});
    layers.both("transform.dense", {"vocab_transform"});
    layers.both("transform.ln", {"vocab_layer_norm"});
    m.copies = {{"vocab_projector.weight", "distilbert.embeddings.word_embeddings.weight"}};
  }
  if (labels) {
    layers.both("pooler", {"pre_classifier"});
    layers.both("head", {"classifier"});
  }
  for (size_t i = body; i < m.tensors.size(); ++i) m.tensors[i].head = true;
  m.prefix = "distilbert.";  // of DistilBertModel by itself
  m.ignored = {"distilbert.embeddings.position_ids"};
}

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
  name_distilbert_tensors(o, true, true, m);
  return m;
}

HfExport distilbert_export(const std::vector<Field>& options, const TaskSpec& task) {
  BertOptions o;
  copy_options(options, fields(o));
  require(o.segments == 0, ExitCode::kConfig, "model.segments: a DistilBERT (model.pooler: relu) has none");
  HfExport out;
  out.model.family = "distilbert";
  const bool labels = task.vocabulary > 0;
  name_distilbert_tensors(o, !labels, labels, out.model);
  const std::string architecture = labels ? "DistilBertForSequenceClassification" : "DistilBertForMaskedLM";
  out.config = {{"architectures", json_array(std::vector<JsonValue>{architecture})},
                {"model_type", std::string("distilbert")},
                {"vocab_size", o.vocabulary > 0 ? o.vocabulary : task.tokens()},
                {"max_position_embeddings", o.positions > 0 ? o.positions : task.input[0]},
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
