// ParamGroup: the parameters that travel together, in flat buffers. Autograd writes gradients straight into the buffer
// of the micro-batch's leaf; leaves merge in the tree's order; what is left goes to the slices' owners, is merged
// there, and comes back. Owned by DataParallel; holds the parameters' memory. Knows nothing of optimizers.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include "comm/communicator.h"
#include "core/nn/module.h"
#include "sharding/layout.h"
#include "sharding/options.h"
#include "sharding/tree.h"

namespace lockstep {

class ParamGroup {
 public:
  // Places the parameters in one flat buffer and fills it with their initial values.
  ParamGroup(std::string name, std::vector<NamedParameter> parameters, uint64_t seed, bool frozen);
  ParamGroup(const ParamGroup&) = delete;

  const std::string& name() const { return name_; }
  const Layout& layout() const { return layout_; }
  bool frozen() const { return frozen_; }
  const Tensor& flat_parameters() const { return parameters_; }
  // After reduce(): the summed gradient of the whole group, fp32 [layout().total()].
  const Tensor& flat_gradients() const { return gradients_; }

  // Called when all of this micro-batch's gradients are in.
  void set_on_ready(std::function<void()> on_ready) { on_ready_ = std::move(on_ready); }

  // A step of `micro_count` micro-batches begins.
  void begin_step(int64_t micro_count);
  // Micro-batch `index` begins: binds a fresh leaf buffer.
  void begin_micro_batch(int64_t index);
  // It ends: parameters that got no gradient count as zeros. Returns how many those were.
  int end_micro_batch();
  bool ready() const { return pending_ == 0; }

  // Launches this group's exchange; `ranges` says which micro-batches each rank ran.
  void launch(Communicator& comm, ReduceMode mode, const std::vector<Range>& ranges);
  // Waits for the exchange and merges this rank's slice in the tree's order.
  void merge(Communicator& comm, ReduceMode mode, const std::vector<Range>& ranges);
  // Brings the merged slices together on every rank; wait for the result before use.
  Work gather(Communicator& comm);
  // This rank's merged slice.
  const Tensor& slice_gradient() const { return slice_; }

 private:
  Tensor take_buffer();
  void gradient_arrived(size_t i);
  void leaf_complete();

  std::string name_;
  std::vector<NamedParameter> members_;
  Layout layout_;
  bool frozen_;
  Tensor parameters_, gradients_, slice_, received_;
  std::function<void()> on_ready_;

  std::vector<Tensor> spare_;  // flat buffers not in use
  TreeStack<Tensor> nodes_;
  Tensor leaf_;
  int64_t micro_ = 0, micro_count_ = 0;
  int pending_ = 0;
  std::vector<bool> arrived_;
  std::vector<Work> works_;
};

}  // namespace lockstep
