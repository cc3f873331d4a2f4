// Mesh: the ranks as a grid, whose dimensions are axes (comm/axis.h). `data`: every rank, each with micro-batches of
// its own. It is cut into replicas x shards: consecutive ranks are a shard group, which holds one copy of the state in
// slices; ranks at the same place of their groups are replicas of each other. A group of one rank is plain data
// parallelism, a group of all ranks is full sharding, and any other size is hybrid sharding. The axis along which whole
// gradients are exchanged may be cut once more, into the ranks of a machine and the machines, so that each byte travels
// between two machines once. Owned by DataParallel; borrows the communicator of `data`.
#pragma once

#include <memory>
#include <vector>

#include "comm/axis.h"
#include "comm/machine_grid.h"

namespace lockstep {

class Mesh {
 public:
  // Collective. Throws ExitCode::kConfig where `group` does not divide the data axis.
  Mesh(const Axis& data, int group);
  Mesh(const Mesh&) = delete;

  const Axis& data() const { return data_; }
  // Without a communicator where their size is 1.
  const Axis& shard() const { return shard_; }
  const Axis& replica() const { return replica_; }
  // Along which whole gradients are exchanged: the shard axis, or, where that is one rank, the replica axis.
  const Axis& first() const { return shard_.size > 1 ? shard_ : replica_; }
  // Where first() has as many ranks on each of several machines: the grid, the ranks of this rank's machine, and those
  // at its place on every machine. Rank m * machine().size + l of first() is rank l of
  // machine m. Elsewhere the grid is one rank and both axes have size 1.
  const MachineGrid& machines() const { return grid_; }
  const Axis& machine() const { return machine_; }
  const Axis& lane() const { return lane_; }
  // The lane once more, cut by machines().steps().
  const std::vector<Axis>& lane_steps() const { return lane_steps_; }
  // The shard axis by a second channel: parameters never queue behind gradients.
  Communicator& gathers() const { return *gathers_; }

  // Places in the grid by the index along the data axis, and back.
  int shard_of(int rank) const { return rank % shard_.size; }
  int replica_of(int rank) const { return rank / shard_.size; }
  int rank_of(int replica, int shard) const { return replica * shard_.size + shard; }

 private:
  void find_machines();

  const Axis data_;
  MachineGrid grid_;
  Axis shard_, replica_, machine_, lane_;
  std::vector<Axis> lane_steps_;
  std::unique_ptr<Communicator> shard_group_, replica_group_, gathers_;  // null where data_'s serves, or one rank
  std::unique_ptr<Communicator> machine_group_, lane_group_;             // null: one rank of a machine
  std::vector<std::unique_ptr<Communicator>> step_groups_;               // empty where the lane's is the only one
};

}  // namespace lockstep
