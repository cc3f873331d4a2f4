#include "launch/training/step/global_batch.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/autograd/node.h"
#include "core/ops/ops.h"
#include "sharding/mesh.h"

namespace lockstep {
namespace {

// The value of one tensor with the gradient of another.
Tensor with_value(const Tensor& value, const Tensor& differentiated) {
  return result_of("global_batch_loss", CallSite::current(), value.detach(), {&differentiated},
                   [](const Tensor& grad, Gradients& grads) { grads.pass(0, grad); });
}

}  // namespace

Tensor outputs_of_all(DataParallel& parallel, const StepBatch& batch, int64_t micro, MicroSchedule schedule,
                      const std::function<Tensor(const MicroBatch&)>& output) {
  NoGrad no_grad;
  const Axis& ranks = parallel.mesh().data();
  std::vector<std::vector<int64_t>> dealt;  // indices of micro-batches by rank: lower ranks have at least as many
  for (int r = 0; r < ranks.size; ++r) dealt.push_back(micro_batches_of(schedule, batch.micro_count, r, ranks.size));
  std::vector<Tensor> mine;
  for (size_t round = 0; round < dealt[0].size(); ++round) {
    const auto busy = std::count_if(dealt.begin(), dealt.end(), [&](auto& d) { return d.size() > round; });
    parallel.forward_round(busy, [&] {
      const Tensor one = output(batch.mine[round]);
      require(one.rank() == 2, ExitCode::kConfig, "a task over the global batch gives the output ", one,
              ": it must have two dimensions, [samples, features]");
      mine.push_back(cast(one, DType::kFloat32));
    });
  }
  const auto rows_of = [&](int64_t index) { return std::min(micro, batch.samples - index * micro); };
  int64_t width = mine.empty() ? 0 : mine[0].dim(1);
  for (int64_t w : all_gather_values(ranks.comm(), width, "global batch")) width = std::max(width, w);
  std::vector<int64_t> counts;
  for (auto& indices : dealt) {
    counts.push_back(0);
    for (int64_t i : indices) counts.back() += rows_of(i) * width;
  }
  const Tensor own = mine.empty() ? Tensor::empty({0}, DType::kFloat32) : reshape(concat(mine, 0), {-1});
  Tensor all = Tensor::empty({batch.samples * width}, DType::kFloat32);
  ranks.comm().all_gather(all, own, counts, "global batch").wait();
  // From the ranks' order to that of the micro-batches.
  std::vector<std::pair<int64_t, int64_t>> places;  // micro-batch, its first row in `all`
  int64_t row = 0;
  for (auto& indices : dealt)
    for (int64_t i : indices) places.emplace_back(i, std::exchange(row, row + rows_of(i)));
  std::sort(places.begin(), places.end());
  const Tensor rows = reshape(all, {batch.samples, width});
  std::vector<Tensor> ordered;
  for (auto& [i, first] : places) ordered.push_back(slice(rows, 0, first, first + rows_of(i)));
  return concat(ordered, 0);
}

GlobalBatchLoss::GlobalBatchLoss(GlobalBatchTask& task, const Tensor& outputs) {
  Tensor leaf = outputs.detach();
  require_grad(leaf);
  const Tensor losses = task.losses(leaf);
  require(losses.shape() == Shape{outputs.dim(0)} && losses.dtype() == DType::kFloat32, ExitCode::kConfig,
          "a task over the global batch gives losses ", losses, " for ", outputs.dim(0),
          " samples: it must give one for each, in fp32");
  losses_ = losses.detach();
  backward(sum(losses));
  gradient_ = grad_of(leaf);
  check(gradient_.defined(), "the loss over the global batch does not depend on the outputs");
}

Tensor GlobalBatchLoss::loss_of(const Tensor& output, int64_t first) const {
  const int64_t end = first + output.dim(0);
  const Tensor part = sum(cast(output, DType::kFloat32) * slice(gradient_, 0, first, end));
  return with_value(sum(slice(losses_, 0, first, end)), part);
}

}  // namespace lockstep
