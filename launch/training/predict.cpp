#include "launch/training/predict.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <vector>

#include "core/autograd/node.h"
#include "core/base/flight_recorder.h"
#include "core/ops/ops.h"

namespace lockstep {
namespace {

// Of a micro-batch: in the text that a rank sends it stands before the bytes.
struct BlockHead {
  int64_t first, count, bytes;
};

// Hands on what the ranks sent, in the order of the samples.
void use_in_order(const std::vector<std::string>& texts, const std::function<void(const PredictedSamples&)>& use) {
  std::map<int64_t, PredictedSamples> blocks;
  for (const std::string_view text : texts)
    for (size_t at = 0; at < text.size();) {
      BlockHead head;
      std::memcpy(&head, text.data() + at, sizeof head);
      at += sizeof head;
      blocks[head.first] = {head.first, head.count, text.substr(at, static_cast<size_t>(head.bytes))};
      at += static_cast<size_t>(head.bytes);
    }
  for (const auto& [first, samples] : blocks) use(samples);
}

}  // namespace

void predict(Task& task, DataParallel& parallel, const Dataset& data, const EvalOptions& options,
             const EncodeOutput& encode, const std::function<void(const PredictedSamples&)>& use) {
  const Axis& ranks = parallel.mesh().data();
  NoGrad no_grad;
  task.module().eval();
  LoaderOptions o;
  o.batch_micro = options.micro_batch;
  o.batch_global = options.micro_batch * ranks.size * 4;
  o.shuffle = false;
  o.one_epoch = true;
  o.rank = ranks.index;
  o.size = ranks.size;
  o.threads = options.loader_threads;
  o.schedule = MicroSchedule::kWaves;
  Loader loader(data, o);
  while (!loader.done()) {
    FlightPhase phase("predict");
    const StepBatch step = loader.next();
    std::string mine;
    for (int64_t first = 0; first < step.micro_count; first += ranks.size)
      parallel.forward_round(std::min<int64_t>(ranks.size, step.micro_count - first), [&] {
        const MicroBatch& m = step.mine[static_cast<size_t>(first / ranks.size)];
        WithRandom random({options.seed, options.step, m.samples});
        const Batch batch = as_computed(m.batch, options.compute);
        const std::string bytes = encode(task.output(batch), batch);
        const BlockHead head{step.position + m.index * o.batch_micro, static_cast<int64_t>(m.samples->size()),
                             static_cast<int64_t>(bytes.size())};
        mine.append(reinterpret_cast<const char*>(&head), sizeof head);
        mine += bytes;
      });
    if (ranks.size == 1) {
      use_in_order({std::move(mine)}, use);
      continue;
    }
    const std::vector<std::string> all = all_gather_text(ranks.comm(), mine, "predictions");
    if (ranks.index == 0) use_in_order(all, use);
  }
  task.module().train();
}

}  // namespace lockstep
