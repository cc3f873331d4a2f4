#include "launch/training/evaluation/predict.h"
#include "sharding/mesh.h"

#include <cstring>
#include <map>
#include <vector>

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
  for_each_step(
      task, parallel, data, options, samples_of_pass(parallel, options), "predict", [&](const StepBatch& step) {
        std::string mine;
        for_each_output(task, parallel, step, options,
                        [&](const Tensor& output, const Batch& batch, const MicroBatch& m, int64_t first) {
                          const std::string bytes = encode(output, batch);
                          const BlockHead head{first, std::ssize(*m.samples), std::ssize(bytes)};
                          mine.append(reinterpret_cast<const char*>(&head), sizeof head);
                          mine += bytes;
                        });
        const std::vector<std::string> all =
            ranks.size == 1 ? std::vector{std::move(mine)} : all_gather_text(ranks.comm(), mine, "predictions");
        if (ranks.index == 0) use_in_order(all, use);
      });
}

}  // namespace lockstep
