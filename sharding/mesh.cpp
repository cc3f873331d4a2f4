#include "sharding/mesh.h"

namespace lockstep {

Mesh::Mesh(Communicator& world, int group) : world_(world), shards_(group) {
  require(group >= 1 && world.size() % group == 0, ExitCode::kConfig, "sharding.group: ", group,
          " does not divide the ", world.size(), " ranks; use a divisor, or 0 for one group of all");
  const int rank = world.rank();
  // Rows and columns have colors of their own, by which a plan tells them apart (comm/plan_comm.h).
  if (shards_ > 1) gathers_ = world.split(rank / shards_, rank, "parameters' channel");
  if (shards_ > 1 && replicas() > 1) {
    shard_group_ = world.split(rank / shards_, rank, "shard group");
    replica_group_ = world.split(world.size() + rank % shards_, rank, "replicas");
  }
}

}  // namespace lockstep
