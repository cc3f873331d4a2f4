// ModelBuffers: the model's buffers (core/nn/module.h), the same on every rank. It keeps what each micro-batch's
// forward pass leaves for them, and folds the step's into them on all ranks alike, in the order of the micro-batches,
// unless the step is skipped. Owned by DataParallel; borrows model and mesh.
#pragma once

#include <map>
#include <vector>

#include "core/base/partition.h"
#include "core/nn/module.h"
#include "core/state/state.h"
#include "sharding/bucket_layout.h"
#include "sharding/mesh.h"

namespace lockstep {

class ModelBuffers {
 public:
  // Allocates the buffers and gives them their initial values. The model's modules have their names.
  ModelBuffers(const Module& model, const Mesh& mesh);

  void begin_step() { updates_.clear(); }
  // Takes the updates of the micro-batch whose forward pass ran last; discard() before the next, as the backward pass
  // may have run it again.
  void collect();
  void discard();
  // After all micro-batches of the step, which `schedule` dealt. `verdict`: PendingStep::verdict. Collective.
  void fold(MicroSchedule schedule, int64_t micro_count, const Tensor& verdict);

  // This rank's slices, "buffers/NAME", to save; to load into: then gather(), collective.
  std::vector<StateEntry> state() const;
  void gather();

 private:
  IndexRange slice_of(int shard) const { return BucketLayout::cut(layout_.all(), mesh_.shard().size, shard); }

  const Mesh& mesh_;
  std::vector<NamedBuffer> buffers_;
  BucketLayout layout_;
  Tensor flat_;  // all of them, fp32 [layout_.total()]
  struct Run {   // neighbours of one rate
    IndexRange elements;
    double rate;
  };
  std::vector<Run> runs_;
  std::vector<Tensor> updates_;       // of this rank's micro-batches, laid out as flat_
  std::map<int64_t, Tensor> orders_;  // int32: where each micro-batch's row is gathered, by their number
};

}  // namespace lockstep
