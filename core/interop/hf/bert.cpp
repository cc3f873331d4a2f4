// BERT with its head for hidden tokens, or the one for a text's label.
#include "core/models/bert.h"
#include "core/interop/hf/bert_parts.h"
#include "core/interop/hf/shared.h"

namespace lockstep {
namespace {

void name_bert(const BertOptions& o, BertHeads heads, HfModel& m) {
  name_bert_tensors(o, heads, kBertNames, m);
  if (heads.tokens) m.copies.emplace_back("cls.predictions.decoder.bias", "cls.predictions.bias");
  m.ignored.push_back("cls.seq_relationship.*");
}

HfModel bert_of(const HfConfig& c) {
  BertOptions o = read_bert_options(c, 30522);
  o.gelu = gelu_of(c);
  HfModel m;
  m.options = option_values(fields(o), c, {"dropout"});
  m.task = {{o.positions}, o.vocabulary};
  name_bert(o, {}, m);
  return m;
}

HfExport bert_export(const std::vector<Field>& options, const TaskSpec& task) {
  BertOptions o;
  copy_options(options, fields(o));
  HfExport out;
  out.model.family = "bert";
  const bool labels = task.vocabulary > 0;
  set_extents(o, task);
  name_bert(o, {!labels, labels}, out.model);
  if (o.segments == 0) out.zeros = {{"bert.embeddings.token_type_embeddings.weight", {1, o.width}}};
  o.segments = std::max<int64_t>(1, o.segments);  // with that tensor of zeros
  out.model.options = values_of(fields(o));
  out.config = bert_config(o, task, out.model.family, "Bert");
  return out;
}

}  // namespace

BertOptions read_bert_options(const HfConfig& c, int64_t vocabulary) {
  BertOptions o;
  o.layers = c.integer("num_hidden_layers", 12);
  o.heads = c.integer("num_attention_heads", 12);
  o.width = c.integer("hidden_size", 768);
  o.vocabulary = c.integer("vocab_size", vocabulary);
  o.positions = c.integer("max_position_embeddings", 512);
  o.segments = c.integer("type_vocab_size", 2);
  need_four_widths(c, o.width);
  o.norm_eps = c.number("layer_norm_eps", o.norm_eps);
  c.one_of("position_embedding_type", {"absolute"});
  c.need_truth("is_decoder", false);
  c.need_truth("tie_word_embeddings", true);
  return o;
}

void set_extents(BertOptions& o, const TaskSpec& task) {
  if (o.vocabulary == 0) o.vocabulary = task.tokens();
  if (o.positions == 0) o.positions = o.first_position + task.input[0];
}

JsonObject bert_config(const BertOptions& o, const TaskSpec& task, const std::string& family, const char* prefix) {
  const bool labels = task.vocabulary > 0;
  const std::string architecture = str(prefix, labels ? "ForSequenceClassification" : "ForMaskedLM");
  JsonObject out{{"architectures", json_array(std::vector<JsonValue>{architecture})},
                 {"model_type", family},
                 {"vocab_size", o.vocabulary},
                 {"max_position_embeddings", o.positions},
                 {"type_vocab_size", o.segments},
                 {"hidden_size", o.width},
                 {"intermediate_size", 4 * o.width},
                 {"num_hidden_layers", o.layers},
                 {"num_attention_heads", o.heads},
                 {"hidden_act", gelu_text(o.gelu)},
                 {"layer_norm_eps", o.norm_eps},
                 {"hidden_dropout_prob", o.dropout},
                 {"attention_probs_dropout_prob", 0.0},
                 {"pad_token_id", o.first_position > 0 ? JsonValue(o.first_position - 1) : JsonValue(nullptr)},
                 {"tie_word_embeddings", true}};
  if (labels) add_labels(out, task.classes);
  return out;
}

void name_bert_tensors(const BertOptions& o, BertHeads heads, const BertNames& names, HfModel& m) {
  const HfLayers layers{m.tensors};
  const std::string embeddings = str(names.model, ".embeddings.");
  layers.weight("tokens", {embeddings + "word_embeddings"});
  layers.weight("positions", {embeddings + "position_embeddings"});
  if (o.segments > 0) layers.weight("segments", {embeddings + "token_type_embeddings"});
  layers.both("ln", {embeddings + "LayerNorm"});
  for (int64_t i = 0; i < o.layers; ++i) {
    const std::string ours = str("blocks.", i, "."), theirs = str(names.model, ".", names.block, ".", i, ".");
    layers.both(ours + "qkv", {theirs + names.qkv[0], theirs + names.qkv[1], theirs + names.qkv[2]});
    layers.both(ours + "proj", {theirs + names.proj});
    layers.both(ours + "ln1", {theirs + names.ln1});
    layers.both(ours + "up", {theirs + names.up});
    layers.both(ours + "down", {theirs + names.down});
    layers.both(ours + "ln2", {theirs + names.ln2});
  }
  const size_t body = m.tensors.size();
  if (heads.tokens) {
    m.tensors.push_back({"parameters/head_bias", {names.head_bias}});
    layers.both("transform.dense", {names.transform});
    layers.both("transform.ln", {names.transform_ln});
    m.copies = {{str(names.decoder, ".weight"), embeddings + "word_embeddings.weight"}};
  }
  if (heads.labels) {
    layers.both("pooler", {names.pooler});
    layers.both("head", {names.head});
  }
  for (size_t i = body; i < m.tensors.size(); ++i) m.tensors[i].head = true;
  m.prefix = str(names.model, ".");  // of the model without a head
  m.ignored = {embeddings + "position_ids"};
}

bool is_distilbert(const std::vector<Field>& options) {
  BertOptions o;
  copy_options(options, fields(o));
  return o.pooler == BertPooler::kRelu;
}

bool is_roberta(const std::vector<Field>& options) {
  BertOptions o;
  copy_options(options, fields(o));
  return o.first_position > 0;
}

HfFamily bert_family() {
  return {.types = {"bert"},
          .model = "bert",
          .read = bert_of,
          .write = bert_export,
          .holds = [](const std::vector<Field>& options) { return !is_distilbert(options) && !is_roberta(options); },
          .use = HfUse::kLabels,
          .peft = {.keeps_ties = false}};
}

}  // namespace lockstep
