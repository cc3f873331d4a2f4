// RoBERTa with its head for hidden tokens, or the one for a text's label: our bert whose positions begin behind that of
// padding.
#include "core/interop/hf/bert_parts.h"
#include "core/interop/hf/shared.h"

namespace lockstep {
namespace {

// Blocks as in BERT, other heads.
constexpr BertNames roberta_names() {
  BertNames names = kBertNames;
  names.model = "roberta";
  names.head_bias = "lm_head.bias", names.transform = "lm_head.dense", names.transform_ln = "lm_head.layer_norm";
  names.decoder = "lm_head.decoder";
  names.pooler = "classifier.dense", names.head = "classifier.out_proj";
  return names;
}

void name_roberta(const BertOptions& o, BertHeads heads, HfModel& m) {
  name_bert_tensors(o, heads, roberta_names(), m);
  if (heads.tokens) m.copies.emplace_back("lm_head.decoder.bias", "lm_head.bias");
  m.ignored.push_back("roberta.pooler.*");  // which neither head reads
}

HfModel roberta_of(const HfConfig& c) {
  BertOptions o = read_bert_options(c, 50265);
  c.one_of("hidden_act", {"gelu", "gelu_python"});  // which the head has, whatever this says
  o.gelu = GeluForm::kErf;
  if (c.is_null("pad_token_id")) c.refuse("pad_token_id", "is null: positions begin behind that of padding");
  o.first_position = c.integer("pad_token_id", 1) + 1;
  if (o.positions <= o.first_position)
    c.refuse("max_position_embeddings", str("leaves no position behind that of padding, pad_token_id"));
  HfModel m;
  m.options = option_values(fields(o), c, {"dropout"});
  m.task = {{o.positions - o.first_position}, o.vocabulary};
  name_roberta(o, {}, m);
  return m;
}

HfExport roberta_export(const std::vector<Field>& options, const TaskSpec& task) {
  BertOptions o;
  copy_options(options, fields(o));
  require(o.gelu == GeluForm::kErf, ExitCode::kBadData,
          "model.gelu: tanh: roberta of transformers, the architecture for model.first_position above 0, has erf");
  HfExport out;
  out.model.family = "roberta";
  out.chosen_by = "model.first_position above 0";
  const bool labels = task.vocabulary > 0;
  set_extents(o, task);
  name_roberta(o, {!labels, labels}, out.model);
  if (o.segments == 0) out.zeros = {{"roberta.embeddings.token_type_embeddings.weight", {1, o.width}}};
  o.segments = std::max<int64_t>(1, o.segments);  // with that tensor of zeros
  out.model.options = values_of(fields(o));
  out.config = bert_config(o, task, out.model.family, "Roberta");
  for (const char* key : {"bos_token_id", "eos_token_id"}) out.config.emplace_back(key, nullptr);
  return out;
}

}  // namespace

HfFamily roberta_family() {
  return {.types = {"roberta"},
          .model = "bert",
          .read = roberta_of,
          .write = roberta_export,
          .holds = is_roberta,
          .use = HfUse::kLabels,
          .peft = {.keeps_ties = false}};
}

}  // namespace lockstep
