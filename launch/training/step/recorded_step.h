// RecordedStep: a training step as a GPU's graph (core/device/graph.h), recorded once and launched from then on. It
// owns the memory in which the graph finds its micro-batches. Owned by Trainer; borrows DataParallel and the stream.
#pragma once

#include <functional>
#include <vector>

#include "core/device/graph.h"
#include "data/streams/loader.h"
#include "sharding/data_parallel.h"

namespace lockstep {

class RecordedStep {
 public:
  RecordedStep(DataParallel& parallel, Stream& stream) : parallel_(parallel), graph_(stream) {}

  // The step of `batch`, whose shapes are those of every call. `step`, all work from begin_step() to the update, is run
  // at the first call alone, to be recorded, with micro-batches that stay in one place.
  PendingStep run(const StepBatch& batch, const StepRequests& requests,
                  const std::function<PendingStep(const std::vector<MicroBatch>& mine)>& step);

 private:
  DataParallel& parallel_;
  StreamGraph graph_;
  bool recorded_ = false;
  std::vector<MicroBatch> mine_;
  PendingStep outcome_;  // of the recording
};

}  // namespace lockstep
