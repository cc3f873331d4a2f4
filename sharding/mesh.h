// Mesh: the ranks as a grid, replicas x shards. Consecutive ranks form a shard group, which holds one copy of the state
// in slices; ranks at the same place of their groups are replicas of each other. A group of one rank is plain data
// parallelism, a group of all ranks is full sharding, and any other size is hybrid sharding. Owned by DataParallel;
// borrows the world.
#pragma once

#include <memory>

#include "comm/communicator.h"

namespace lockstep {

class Mesh {
 public:
  // Collective. Throws ExitCode::kConfig where `group` does not divide the world.
  Mesh(Communicator& world, int group);

  int shards() const { return shards_; }
  int shard() const { return shard_of(world_.rank()); }
  int replicas() const { return world_.size() / shards_; }
  int replica() const { return replica_of(world_.rank()); }
  // Places in the grid by the world's rank, and back.
  int shard_of(int rank) const { return rank % shards_; }
  int replica_of(int rank) const { return rank / shards_; }
  int rank_of(int replica, int shard) const { return replica * shards_ + shard; }

  Communicator& world() const { return world_; }
  // Only where there is more than one of them:
  Communicator& shard_group() const { return shard_group_ ? *shard_group_ : world_; }
  Communicator& replica_group() const { return replica_group_ ? *replica_group_ : world_; }
  // The shard group's second channel: parameters never queue behind gradients.
  Communicator& gathers() const { return *gathers_; }

 private:
  Communicator& world_;
  int shards_;
  std::unique_ptr<Communicator> shard_group_, replica_group_, gathers_;  // null where the world serves, or one rank
};

}  // namespace lockstep
