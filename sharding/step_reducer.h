// StepReducer: combines losses, target counts and gradient norms across ranks in a fixed order, on the device; the host
// may read the result later. Each rank contributes its micro-batches' losses and counts and the sums of squares of its
// part of the gradients. Owned by DataParallel, one for each number of micro-batches; borrows buckets and mesh.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/partition.h"
#include "sharding/gradient_bucket.h"
#include "sharding/mesh.h"
#include "sharding/step_result.h"

namespace lockstep {

class StepReducer {
 public:
  using Buckets = std::vector<std::unique_ptr<GradientBucket>>;
  // For steps of `micro_count` micro-batches, dealt by `schedule`.
  StepReducer(const Buckets& buckets, const Mesh& mesh, MicroSchedule schedule, int64_t micro_count);

  // Brings them to the device, always to the same place.
  void set_inputs(const StepInputs& inputs);
  // Gradients are sums / nominal * loss_scale; 0: no clipping.
  struct Scales {
    double nominal = 1, loss_scale = 1, clip_norm = 0;
  };
  // Gathers and adds up, in the order of the stream; `losses`: summed, of this rank's micro-batches. After
  // set_inputs(). Collective.
  PendingStep run(const std::vector<Tensor>& losses, const Scales& scales);

 private:
  struct Places;
  struct NormPlan {
    std::string name;            // of a tensor
    std::vector<int32_t> nodes;  // pairs: place, subtrees completed
  };
  Places places_of(MicroSchedule schedule);  // fills counts_, too
  std::vector<NormPlan> norms_of(const Places& places) const;

  const Buckets& buckets_;
  const Mesh& mesh_;
  int64_t micro_count_;
  std::vector<int64_t> counts_;  // of each rank's values: requests, loss and targets of each micro-batch, norm nodes
  Tensor plan_;                  // int32: StepOutcomeArgs::losses, requests, first, nodes
  std::shared_ptr<const std::vector<std::string>> names_;  // of tensors, sorted: their order of addition
  std::shared_ptr<const std::vector<int32_t>> busy_at_;    // where each rank's time is among all values
  Tensor known_;  // fp64: requests, loss and targets of each micro-batch, as far as the host has them
};

}  // namespace lockstep
