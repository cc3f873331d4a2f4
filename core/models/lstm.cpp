#include "core/models/lstm.h"

#include "core/ops/ops.h"

namespace lockstep {

std::vector<Field> fields(RecurrentLmOptions& o) {
  return {field("layers", o.layers, "recurrent layers").with_range(1, 100),
          field("width", o.width, "features of the state").with_unit("features").with_range(1, 65536),
          field("embedding", o.embedding, "features of a token; 0: as many as the state has")
              .with_unit("features")
              .with_range(0, 65536),
          field("dropout", o.dropout, "probability of dropping a feature after the embedding and after each layer")
              .with_range(0, 0.99)};
}

RecurrentLm::RecurrentLm(const char* name, Cell cell, const RecurrentLmOptions& o, const TaskSpec& task)
    : embedding_(
          child<Embedding>("embedding", task.classes, o.embedding > 0 ? o.embedding : o.width, Init::normal(0.1))),
      drop_(child<Dropout>("drop", o.dropout)),
      layers_(child<Recurrent>("layers", o.embedding > 0 ? o.embedding : o.width, o.width,
                               Recurrent::Options{cell, o.layers, false, o.dropout})),
      head_(child<Linear>("head", o.width, task.classes)) {
  require(task.input.rank() == 1, ExitCode::kConfig, "model.name: ", name, " needs tokens, not samples of shape ",
          task.input);
  int64_t n = head_.weight().numel();
  for (auto& p : layers_.parameters())
    if (p.parameter->value.rank() == 2) n += p.parameter->value.numel();
  flops_ = 6.0 * static_cast<double>(task.input[0]) * static_cast<double>(n);
}

Tensor RecurrentLm::forward(const Tensor& tokens_BT) { return head_(drop_(layers_(drop_(embedding_(tokens_BT))))); }

Choice<ModelKind> lstm_choice() { return model_choice<LstmLm, RecurrentLmOptions>("lstm"); }

}  // namespace lockstep
