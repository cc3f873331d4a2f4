#include "launch/training/step/trial_pass.h"

#include <memory>
#include <numeric>
#include <vector>

#include "core/autograd/node.h"
#include "core/device/allocator.h"
#include "core/device/context.h"
#include "core/device/simulated_time.h"
#include "launch/training/weights/build_model.h"

namespace lockstep {

namespace {

class CountedFlops final : public SimulatedTime {
 public:
  double seconds_of(const TaskCost& cost) const override {
    if (cost.flops > 0) by_module[std::string(context().memory_for)] += cost.flops;
    return 0;
  }
  mutable std::map<std::string, double> by_module;
};

}  // namespace

TrialPass try_pass(const Settings& settings, const DataSpec& data) {
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  const WithStream with(stream);
  const auto task = build_task(settings, task_of(data));
  place_parameters(task->module(), 1);
  Batch batch;
  for (const TensorSpec& one : data.tensors) {
    Shape shape{settings.batch.micro};
    for (int d = 0; d < one.shape.rank(); ++d) shape.push_back(one.shape[d]);
    batch.add(one.name, Tensor::empty(shape, one.dtype));
  }
  auto samples = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(settings.batch.micro));
  std::iota(samples->begin(), samples->end(), 0);
  CountedFlops counted;
  for (size_t phase = 0; phase < task->phases().size(); ++phase) {
    const WithRandom random({1, 0, samples});
    const WithSimulatedTime counting(counted);
    task->loss(batch, phase);
  }
  TrialPass out;
  for (const auto& [module, flops] : counted.by_module)
    out.flops[module] = flops / static_cast<double>(settings.batch.micro);
  return out;
}

}  // namespace lockstep
