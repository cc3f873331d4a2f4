// GradientBucket: the gradients of one ParameterBucket. Autograd writes them straight into the leaf of the micro-batch,
// a flat buffer; reduce() sends each owner its part, or lets it read it where ranks share memory, merges the parts in
// the tree's order, and leaves this rank's slice of the step's sum. Owned by ReduceSchedule; borrows the parameters.
#pragma once

#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "sharding/gradient_sink.h"
#include "sharding/parameter_bucket.h"
#include "sharding/tree.h"

namespace lockstep {

class ReduceSchedule;

// One exchange of every bucket: of all of a step's micro-batches at the lower levels, of one wave of them (one a rank)
// from level gradients on.
struct ReduceRound {
  std::vector<IndexRange> ranges;  // by rank: the micro-batches whose sums it brings
  bool last = false;               // of the step
};

class GradientBucket {
 public:
  // Hooks itself to the parameters' gradients until it is destroyed. `schedule` is asked before a leaf takes memory,
  // and told when bucket `index` has all gradients of a micro-batch.
  GradientBucket(const ParameterBucket& parameters, const Mesh& mesh, const DataParallelOptions& options,
                 ReduceSchedule& schedule, size_t index);
  GradientBucket(const GradientBucket&) = delete;
  ~GradientBucket();

  const ParameterBucket& parameters() const { return parameters_; }

  void begin_step(int64_t micro_count);
  // Micro-batch `index` begins: binds each parameter's gradient to its place in a fresh leaf.
  void begin_micro_batch(int64_t index);
  // It ends: parameters that got no gradient count as zeros. Returns how many those were.
  int end_micro_batch();
  // In this step: what each parameter of the bucket gets from micro-batch `index` goes to `sink`, too.
  void watch(int64_t index, const GradientSink& sink);
  // In this step: keeps what each of this rank's micro-batches adds, so that the sum can be formed again.
  void keep_leaves() { keeps_copies_ = true; }
  // Of a step that kept them, in the order of the micro-batches, until the next one begins.
  const std::vector<Tensor>& kept_leaves() const { return kept_; }
  // After the last round and before the update: the step's sum of part(), fp32.
  Tensor sum_of_part() const;
  // Called with each sum of this rank's part, and of another's that it forms again. For faults that are injected.
  void set_sum_observer(std::function<void(const Tensor& sum)> observer) { sum_observer_ = std::move(observer); }
  void observe(const Tensor& sum) const {
    if (sum_observer_) sum_observer_(sum);
  }
  // A micro-batch of another rank, beside a step: what comes of it goes to `sink` alone.
  void begin_apart(const GradientSink& sink);
  void end_apart();
  // Launches the round's exchange; merging goes on in the order of `merging`. Collective.
  void reduce(const ReduceRound& round, Stream& merging);
  // In the order of `merging`, that of reduce(): gives back what its exchange used, where ranks have a GPU each.
  void give_back(Stream& merging);
  // The current stream waits until reduce() is done; then, in its order, leaves that do not stay are freed, and the
  // rest of what the exchange used.
  void free_in_order(Stream& merging);
  // Blocks the host until reduce() is done, and what it gathers is there, and gives back what it used meanwhile. False
  // where `patience` ends first.
  bool finish_reduce(std::optional<Seconds> patience = {});
  // Makes the current stream wait for what reduce() gathers from replicas.
  void wait_gathered();
  // After the last round: this rank's slice of the step's sum, fp32 [slice()], by parameter into consecutive slots.
  void set_gradients(Slot* slots) const;
  // Sums of squares of part(), fp64: of each parameter in it, the largest nodes of the tree over its chunks, in order;
  // written in the order of `merging`.
  const Tensor& norm_nodes() const { return norm_nodes_; }

 private:
  using Nodes = std::vector<std::pair<IndexRange, Tensor>>;  // of the tree, with their sums of a stretch of the buffer

  const BucketLayout& layout() const { return parameters_.layout(); }
  std::string collective_name() const;
  // In which type the round's nodes travel to their first sum: leaves, which were rounded to reduce_dtype_, as they
  // are; where a rank has the sum of several, fp32.
  DType wire_type(const ReduceRound& round) const;
  Tensor take_leaf();
  Tensor take_sum();
  Tensor take_for_exchange(int64_t elements, DType dtype = DType::kFloat32);
  void allocate_leaf();
  void gradient_arrived(size_t i);
  void leaf_complete();
  // Of the elements of a node's buffer, by rank: those of its part.
  using Parts = std::vector<IndexRange>;
  Nodes exchange(Communicator& comm, const Nodes& nodes, const Parts& parts, const std::vector<IndexRange>& ranges,
                 DType wire, Stream& merging);
  Nodes exchange_in_place(Communicator& comm, const Nodes& nodes, const std::vector<Parts>& parts,
                          const std::vector<IndexRange>& ranges, Stream& merging);
  Nodes exchange_first(const Nodes& nodes, const std::vector<IndexRange>& ranges, DType wire, Stream& merging);
  // Between machines, each in turn with a few others, or each with all at a time; or all ranks with each other.
  enum class Stages { kSteps, kOnce, kNone };
  Nodes exchange_in_stages(Stages stages, const Nodes& nodes, const Parts& parts, const std::vector<IndexRange>& ranges,
                           DType wire, Stream& merging);
  Nodes exchange_within_machine(const Nodes& nodes, const std::vector<Parts>& parts,
                                const std::vector<IndexRange>& ranges, DType wire, Stream& merging);
  Nodes arranged(const Nodes& nodes, const Parts& parts);
  Stages best_stages(const std::vector<IndexRange>& ranges, DType wire) const;
  void fold(Nodes nodes, bool last);
  void place_gradient(const Tensor& own_node);
  void reduce_fast(const Nodes& nodes, bool last, Stream& merging);
  void measure(const Tensor& sum);

  const ParameterBucket& parameters_;
  const Mesh& mesh_;
  ReduceSchedule& schedule_;
  size_t index_;
  bool keeps_leaves_;  // below level gradients: leaves stay whole until the step ends
  DType reduce_dtype_;
  ReduceMode mode_;
  bool in_place_;   // the ranks of the first exchange read each other's leaves where they lie
  bool in_stages_;  // or they are a grid of machines
  // Memory is freed in the order of streams: what an exchange uses is given back before the host knows that it is done.
  bool gives_back_;

  int64_t micro_count_ = 0, micro_ = 0, watched_ = -1;
  const GradientSink* sink_ = nullptr;  // borrowed for the step, or for the micro-batch that is apart
  bool apart_ = false, keeps_copies_ = false;
  std::vector<Tensor> kept_;
  std::function<void(const Tensor&)> sum_observer_;
  TreeStack<Tensor> nodes_;  // of this rank's micro-batches of the round; whole buffers
  TreeStack<Tensor> sum_;    // of all ranks' so far; this rank's part
  std::vector<Tensor> leaves_, spare_, sums_, spare_sums_;
  std::vector<Tensor> in_flight_;  // what the exchange uses until it is done
  std::vector<Tensor> used_;       // of that, what give_back() frees
  Tensor leaf_, gradient_, gradient_buffer_;
  std::vector<bool> arrived_;
  int pending_ = 0;
  Tensor norm_sums_, norm_ranges_, norm_nodes_;  // of chunks; each node's first and last of them; of nodes
  Event reduced_;                                // summed
  Work gathering_;                               // from replicas
};

}  // namespace lockstep
