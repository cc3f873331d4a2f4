#include "launch/training/step/recorded_step.h"

#include "core/tensor/raw_ops.h"

namespace lockstep {

PendingStep RecordedStep::run(const StepBatch& batch, const StepRequests& requests,
                              const std::function<PendingStep(const std::vector<MicroBatch>& mine)>& step) {
  if (!recorded_) {
    mine_ = batch.mine;
    for (MicroBatch& m : mine_)
      for (auto& [name, tensor] : m.batch.tensors()) tensor = Tensor::empty(tensor.shape(), tensor.dtype());
  }
  StepInputs inputs{batch.micro_count, {}, requests};
  for (size_t i = 0; i < mine_.size(); ++i) {
    for (size_t t = 0; t < mine_[i].batch.tensors().size(); ++t)
      raw::copy(mine_[i].batch.tensors()[t].second, batch.mine[i].batch.tensors()[t].second);
    inputs.targets.push_back(batch.mine[i].targets);
  }
  parallel_.set_inputs(inputs);
  if (!recorded_) {
    parallel_.require_gather();  // part of the graph, whatever an evaluation has gathered
    graph_.record([&] { outcome_ = step(mine_); });
    recorded_ = true;
  }
  graph_.launch();
  return parallel_.relaunched(outcome_);
}

}  // namespace lockstep
