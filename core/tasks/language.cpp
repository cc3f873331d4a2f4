// The next token: labels [B, T] are the tokens after those of the input.
#include "core/base/ignore_index.h"
#include "core/base/trace.h"
#include "core/models/token_transformer.h"
#include "core/ops/ops.h"
#include "core/tasks/model_task.h"

namespace lockstep {
namespace {

class Language : public LabelTask {
 public:
  using LabelTask::LabelTask;

  std::pair<std::string, std::string> problem(const TaskSpec& data) const override {
    if (!model().traits().causal && data.next_tokens)
      return {"data.mask", str(context().model_name,
                               " is bidirectional: its input would contain each token's target, "
                               "the next token; set data.mask, such as to 0.15, to train on masked tokens")};
    const auto* transformer = dynamic_cast<const TokenTransformer*>(&model());
    if (transformer && transformer->has_features() && context().huber_delta == 0 && context().class_weights.empty())
      return {};
    return LabelTask::problem(data);
  }

  std::vector<Metric> metrics() const override {
    std::vector<Metric> out = LabelTask::metrics();
    if (context().token_texts)
      for (Metric& metric : text_metrics(context().token_texts)) out.push_back(std::move(metric));
    return out;
  }

  // With train.loss_rows the logits of so many rows are held at a time: the loss multiplies by the head itself.
  Tensor loss(const Batch& batch, size_t phase) override {
    trace_mark();
    auto* transformer = context().loss_rows > 0 ? dynamic_cast<TokenTransformer*>(&model()) : nullptr;
    if (!transformer || !model().training() || !transformer->head()) return LabelTask::loss(batch, phase);
    return transformer->with_features(batch, [&](const Tensor& features, const Tensor& head) {
      return linear_cross_entropy(features, head, batch[kLabels], context().loss_rows, kIgnoreIndex, smoothing(),
                                  transformer->logit_cap());
    });
  }
};

}  // namespace

Choice<TaskKind> language_task() { return task_choice<Language>("language"); }

}  // namespace lockstep
