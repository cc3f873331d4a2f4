// Language models of recurrent layers: an embedding, LSTM or GRU layers, a linear head.
#pragma once

#include "core/base/field.h"
#include "core/models/model.h"
#include "core/nn/layers.h"

namespace lockstep {

struct RecurrentLmOptions {
  int64_t layers = 2, width = 256;
  int64_t embedding = 0;  // 0: width
  double dropout = 0;
};
std::vector<Field> fields(RecurrentLmOptions& o);

class RecurrentLm : public Model {
 public:
  RecurrentLm(const char* name, Cell cell, const RecurrentLmOptions& options, const TaskSpec& task);
  std::vector<TensorNeed> reads() const override { return {{"tokens", TensorNeed::Type::kInteger, 1}}; }
  ModelTraits traits() const override { return {.rank = 1}; }
  Tensor forward(const Tensor& tokens_BT) override;  // int32 -> [B, T, V]
  double flops() const override { return flops_; }

 private:
  Embedding& embedding_;
  Dropout& drop_;
  Recurrent& layers_;
  Linear& head_;
  double flops_ = 0;
};

class LstmLm : public RecurrentLm {
 public:
  LstmLm(const RecurrentLmOptions& o, const TaskSpec& task) : RecurrentLm("lstm", Cell::kLstm, o, task) {}
};
class GruLm : public RecurrentLm {
 public:
  GruLm(const RecurrentLmOptions& o, const TaskSpec& task) : RecurrentLm("gru", Cell::kGru, o, task) {}
};

}  // namespace lockstep
