#include "launch/training/trial_pass.h"

#include <memory>
#include <numeric>
#include <vector>

#include "core/autograd/node.h"
#include "core/device/allocator.h"
#include "launch/training/build_model.h"

namespace lockstep {

void try_pass(const Settings& settings, const DataSpec& data) {
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
  for (size_t phase = 0; phase < task->phases().size(); ++phase) {
    const WithRandom random({1, 0, samples});
    task->loss(batch, phase);
  }
}

}  // namespace lockstep
