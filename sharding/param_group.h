// ParamGroup: the parameters that travel together, in flat buffers. This rank keeps its slice of them (masters, fp32);
// the model reads a whole copy that gather() brings together. Autograd writes gradients straight into the buffer of the
// micro-batch's leaf; reduce() sends each owner its part, merges what arrives in the tree's order, and leaves this
// rank's slice of the sum. Owned by DataParallel; holds the parameters' memory.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/io/state.h"
#include "core/nn/module.h"
#include "core/nn/slot.h"
#include "sharding/layout.h"
#include "sharding/mesh.h"
#include "sharding/options.h"
#include "sharding/tree.h"

namespace lockstep {

class ParamGroup {
 public:
  // Places the parameters in one flat buffer and fills this rank's slice with initial values.
  ParamGroup(std::string name, std::vector<NamedParameter> parameters, const Mesh& mesh,
             const DataParallelOptions& options, bool frozen);
  ParamGroup(const ParamGroup&) = delete;

  const std::string& name() const { return name_; }
  const Layout& layout() const { return layout_; }
  bool frozen() const { return frozen_; }
  int64_t whole_bytes() const { return whole_.bytes(); }

  // --- Parameters.
  // Masters are written: whole copies are out of date. Where parameters come and go, this one goes. `by_update`: by who
  // may write the slots' copies too, which then are this rank's part of it.
  void changed(bool by_update);
  // Begins to bring the whole copy up to date; nothing happens where it is, or is on its way. Collective in the shard
  // group.
  void gather();
  // The current stream waits until it is whole.
  void wait_whole();
  bool whole() const { return state_ != State::kOld && state_ != State::kAbsent; }
  // Gives the whole copy's memory back, until the next gather().
  void release();

  // --- Gradients. One round is one exchange: all of a step's micro-batches at the lower levels, one of each rank's
  // from kGradients on.
  struct Round {
    std::vector<Range> ranges;  // the micro-batches whose sums each rank brings
    bool last = false;          // of the step
  };
  void begin_step(int64_t micro_count);
  // Micro-batch `index` begins: binds a fresh leaf buffer. `before_leaf` is called when that takes memory, `on_ready`
  // when all of its gradients are in.
  void begin_micro_batch(int64_t index);
  void set_callbacks(std::function<void()> before_leaf, std::function<void()> on_ready) {
    before_leaf_ = std::move(before_leaf), on_ready_ = std::move(on_ready);
  }
  // It ends: parameters that got no gradient count as zeros. Returns how many those were.
  int end_micro_batch();
  // Launches the round's exchange; merging goes on in the order of `merging`. Collective.
  void reduce(const Round& round, Stream& merging);
  // Blocks the host until reduce() is done, and gives back what it used meanwhile. False where `patience` ends first.
  bool finish_reduce(std::optional<Seconds> patience = {});
  // After the last round: this rank's slice of the step's sum, fp32 [slice()].
  const Tensor& gradient() const { return gradient_; }
  // Sums of squares of part(), fp64: of each parameter in it, the largest nodes of the tree over its chunks, in order;
  // written in the order of `merging`.
  const Tensor& norm_nodes() const { return norm_nodes_; }

  Range slice() const { return slice_; }                        // that this rank keeps, in the flat buffer
  Range part() const { return part_of(mesh_.world().rank()); }  // that it sums: its share of the slice among replicas
  Range part_of(int world_rank) const;
  // One for each trainable parameter; empty where this rank has no part of it.
  std::vector<Slot> slots() const;
  void set_gradients(Slot* slots) const;
  std::vector<StateEntry> state() const;
  // The whole copy by parameter, in its compute type, as the last step used it; nothing where the state is that copy,
  // or parameters come and go.
  std::vector<StateEntry> whole_copies() const;

 private:
  using Nodes = std::vector<std::pair<Range, Tensor>>;  // of the tree, with their sums of a stretch of the buffer
  enum class State { kAbsent, kOld, kGathering, kWhole };

  bool copy_is_current() const;
  Tensor take_leaf();
  Tensor take_sum();
  void begin_leaf();
  void gradient_arrived(size_t i);
  void leaf_complete();
  Nodes exchange(Communicator& comm, const Nodes& nodes, Range span, const std::vector<Range>& ranges, DType wire,
                 Stream& merging);
  void fold(Nodes nodes, bool last);
  void place_gradient(const Tensor& own_node);
  void reduce_fast(const Nodes& nodes, bool last, Stream& merging);
  void measure(const Tensor& sum);
  int64_t first_element(const Layout::Piece& piece) const;
  Tensor of_slice(const Tensor& slice_tensor, const Layout::Piece& piece) const;

  std::string name_;
  std::vector<NamedParameter> members_;
  const Mesh& mesh_;
  // What the level adds.
  bool streamed_;      // parameters come and go
  bool offloaded_;     // masters are in host memory
  bool keeps_leaves_;  // gradients stay whole until the step ends
  DType compute_, reduce_dtype_;
  ReduceMode mode_;
  bool frozen_;

  Layout layout_;
  Range slice_;
  Tensor master_, whole_;  // fp32 [slice], compute type [total]; one memory where type and level allow
  State state_ = State::kAbsent;
  bool values_changed_ = true;
  // This rank's slice of the whole copy is the masters' where both were written equally often since: by updates that
  // write the slots' copies, too.
  uint64_t master_version_ = 0, whole_version_ = 0;
  bool was_copied_ = false;
  Work gathering_;

  std::function<void()> before_leaf_, on_ready_;
  int64_t micro_count_ = 0, micro_ = 0;
  TreeStack<Tensor> nodes_;  // of this rank's micro-batches of the round; whole buffers
  TreeStack<Tensor> sum_;    // of all ranks' so far; this rank's part
  std::vector<Tensor> leaves_, spare_, sums_, spare_sums_;
  std::vector<Tensor> in_flight_;  // what the exchange uses until it is done
  Tensor leaf_, gradient_, gradient_buffer_;
  std::vector<bool> arrived_;
  int pending_ = 0;
  Tensor norm_sums_, norm_ranges_, norm_nodes_;  // of chunks; each node's first and last of them; of nodes
  Event reduced_;
};

}  // namespace lockstep
