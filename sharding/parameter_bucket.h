// ParameterBucket: parameters that travel together, in one flat buffer. This rank keeps its slice of them (masters,
// fp32; of frozen parameters with options.frozen_of_files the values themselves); the model reads a whole copy in the
// compute type, which gather() brings together. Owned by DataParallel; holds the parameters' memory.
#pragma once

#include <string>
#include <vector>

#include "core/nn/module.h"
#include "core/nn/slot.h"
#include "core/state/state.h"
#include "sharding/bucket_layout.h"
#include "sharding/mesh.h"
#include "sharding/options.h"

namespace lockstep {

class ParameterBucket final : public SlotGroup {
 public:
  // Places the parameters in the flat buffer and fills this rank's slice with initial values. Collective.
  ParameterBucket(std::string name, std::vector<NamedParameter> parameters, const Mesh& mesh,
                  const DataParallelOptions& options, bool frozen);
  ParameterBucket(const ParameterBucket&) = delete;

  const std::string& name() const { return name_; }
  const std::vector<NamedParameter>& members() const { return members_; }  // in the order of the layout's members
  const BucketLayout& layout() const { return layout_; }
  bool frozen() const { return frozen_; }
  // Are its values those of files that stay, so that checkpoints do not hold them?
  bool of_files() const { return of_files_; }
  int64_t whole_bytes() const { return whole_.bytes(); }

  // Masters were written, or the next work in the stream writes them: the whole copy is out of date; at level
  // parameters it is released. `by_update`: by an optimizer, which may write the slots' copies too: these then are up
  // to date in this rank's slice.
  void invalidate(bool by_update);
  // Begins to bring the whole copy up to date; does nothing where it is, or is on its way. Collective in the shard
  // group.
  void gather();
  // The current stream waits until it is whole.
  void wait_whole();
  bool whole() const { return state_ != State::kOld && state_ != State::kAbsent; }
  // At level parameters: gives the whole copy's memory back, until the next gather().
  void release();

  IndexRange slice() const { return slice_; }  // of the flat buffer, that this rank keeps
  // That this rank sums: its share of the slice among replicas; part_of() of another one along the data axis.
  IndexRange part() const { return part_of(mesh_.data().index); }
  IndexRange part_of(int rank) const;
  // What of a tensor over slice() belongs to parameter `index`; empty where this rank has no part of it.
  Tensor of_slice(const Tensor& slice_tensor, size_t index) const;

  // One for each trainable parameter, without its gradient; empty where this rank has no part of it.
  std::vector<Slot> slots() const;
  int64_t total() const override { return layout_.total(); }
  void gather_whole(const Tensor& whole, int64_t per_chunk) const override;
  std::vector<StateEntry> state() const;
  // The whole copy by parameter, in its compute type, as the last step used it; nothing where the state is that copy,
  // or parameters come and go.
  std::vector<StateEntry> whole_copies() const;

 private:
  enum class State { kAbsent, kOld, kGathering, kWhole };

  Work all_gather(const Tensor& whole, const Tensor& mine, std::vector<int64_t> counts) const;
  bool copy_is_current() const;
  int64_t first_element(size_t index) const;
  void fill(const Init& init, uint64_t seed, std::string_view name, int64_t first, IndexRange of_slice) const;

  std::string name_;
  std::vector<NamedParameter> members_;
  const Mesh& mesh_;
  bool streamed_;   // level parameters: whole copies come and go
  bool offloaded_;  // masters are in host memory
  bool frozen_, of_files_;
  DType compute_;  // of the whole copy

  BucketLayout layout_;
  IndexRange slice_;
  Tensor master_, whole_;  // [slice], compute type [total]; one memory where type and level allow
  State state_ = State::kAbsent;
  bool values_changed_ = true;
  // This rank's slice of the whole copy is the masters' where both were written equally often since: by updates that
  // write the slots' copies, too.
  uint64_t master_version_ = 0, whole_version_ = 0;
  bool was_copied_ = false;
  Work gathering_;
};

}  // namespace lockstep
