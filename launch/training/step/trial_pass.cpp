#include "launch/training/step/trial_pass.h"

#include <algorithm>
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

// The samples of the smallest micro-batch of an epoch of `size` samples.
int64_t smallest_micro_batch(int64_t size, int64_t global, int64_t micro) {
  int64_t out = std::min(micro, global);
  for (const int64_t step : {std::min(global, size), size % global})
    if (step % micro != 0) out = std::min(out, step % micro);
  return out;
}

class CountedFlops final : public SimulatedTime {
 public:
  double seconds_of(const TaskCost& cost) const override {
    if (cost.flops > 0) by_module[std::string(context().memory_for)] += cost.flops;
    return 0;
  }
  mutable std::map<std::string, double> by_module;
};

}  // namespace

TrialPass try_pass(const Settings& settings, const DataSpec& data, int64_t samples_at_once) {
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  const WithStream with(stream);
  const auto task = build_task(settings, task_of(data));
  place_parameters(task->module(), 1);
  Batch batch;
  for (const TensorSpec& one : data.tensors) {
    Shape shape{samples_at_once};
    for (int d = 0; d < one.shape.rank(); ++d) shape.push_back(one.shape[d]);
    batch.add(one.name, Tensor::empty(shape, one.dtype));
  }
  auto samples = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(samples_at_once));
  std::iota(samples->begin(), samples->end(), 0);
  CountedFlops counted;
  for (size_t phase = 0; phase < task->phases().size(); ++phase) {
    const WithRandom random({1, 0, samples});
    const WithSimulatedTime counting(counted);
    task->loss(batch, phase);
  }
  TrialPass out;
  for (const auto& [module, flops] : counted.by_module)
    out.flops[module] = flops / static_cast<double>(samples_at_once);
  return out;
}

void try_smallest_micro_batch(const Settings& settings, const Dataset& train) {
  const int64_t size = train.size(), global = settings.batch.global, micro = settings.batch.micro;
  if (micro == 1 || smallest_micro_batch(size, global, micro) > 1 || settings.train.steps < size / global) return;
  try {
    try_pass(settings, train.spec(), 1);
  } catch (const Error& e) {
    if (e.code() != ExitCode::kConfig) throw;
    std::string works;
    for (int64_t other = micro + 1; works.empty() && other <= 2 * micro; ++other)
      if (other <= global && smallest_micro_batch(size, global, other) > 1) works = str("batch.micro=", other);
    for (int64_t other = global + 1; works.empty() && other <= 2 * global; ++other)
      if (other <= size && smallest_micro_batch(size, other, micro) > 1) works = str("batch.global=", other);
    throw Error(ExitCode::kConfig,
                str(settings.config.place("batch.micro"), ": of ", size, " samples in steps of ", global,
                    " and micro-batches of ", micro, ", one micro-batch of an epoch has a single sample: ", e.what(),
                    works.empty() ? "" : str(", such as ", works)));
  }
}

}  // namespace lockstep
