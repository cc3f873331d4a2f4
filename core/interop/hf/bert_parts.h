// What the architectures of our bert share: BERT, DistilBERT and RoBERTa. Plain values and functions.
#pragma once

#include <string>
#include <vector>

#include "core/base/field.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_model.h"
#include "core/models/bert.h"

namespace lockstep {

// Which heads' tensors are named: of a folder all, as the data decides which one a model has.
struct BertHeads {
  bool tokens = true, labels = true;
};

// What an architecture calls the parts of a model. Those of a block stand behind `model`, `block` and its number.
struct BertNames {
  const char *model, *block;
  const char *qkv[3], *proj, *ln1, *up, *down, *ln2;
  const char *head_bias, *transform, *transform_ln, *decoder;  // of the head for hidden tokens; the decoder is tied
  const char *pooler, *head;                                   // of the head for labels
};
constexpr BertNames kBertNames{.model = "bert",
                               .block = "encoder.layer",
                               .qkv = {"attention.self.query", "attention.self.key", "attention.self.value"},
                               .proj = "attention.output.dense",
                               .ln1 = "attention.output.LayerNorm",
                               .up = "intermediate.dense",
                               .down = "output.dense",
                               .ln2 = "output.LayerNorm",
                               .head_bias = "cls.predictions.bias",
                               .transform = "cls.predictions.transform.dense",
                               .transform_ln = "cls.predictions.transform.LayerNorm",
                               .decoder = "cls.predictions.decoder",
                               .pooler = "bert.pooler.dense",
                               .head = "classifier"};
void name_bert_tensors(const BertOptions& o, BertHeads heads, const BertNames& names, HfModel& m);

// Of BERT's and RoBERTa's config.json, which have the same keys: all options but the form of gelu and the first
// position. `vocabulary`: vocab_size where it is not given.
BertOptions read_bert_options(const HfConfig& c, int64_t vocabulary);
// Replaces the zeros that stand for the data's vocabulary and positions.
void set_extents(BertOptions& o, const TaskSpec& task);
// And the file itself, for the head that the task has. `prefix`: of the architecture's name, "Bert".
JsonObject bert_config(const BertOptions& o, const TaskSpec& task, const std::string& family, const char* prefix);

// Whether a model with these options is a DistilBERT, or a RoBERTa.
bool is_distilbert(const std::vector<Field>& options);
bool is_roberta(const std::vector<Field>& options);

}  // namespace lockstep
