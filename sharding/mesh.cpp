#include "sharding/mesh.h"

#include <algorithm>

#include "comm/machine_grid.h"

namespace lockstep {

Mesh::Mesh(const Axis& data, int group) : data_(data) {
  require(group >= 1 && data.size % group == 0, ExitCode::kConfig, "sharding.group: ", group, " does not divide the ",
          data.size, " ranks; use a divisor, or 0 for one group of all");
  shard_.size = group;
  shard_.index = data.index % group;
  replica_.size = data.size / group;
  replica_.index = data.index / group;
  // Rows and columns have colors of their own, by which a plan tells them apart (comm/plan_comm.h).
  if (shard_.size > 1) gathers_ = data.comm().split(replica_.index, data.index, "parameters' channel");
  if (shard_.size > 1 && replica_.size > 1) {
    shard_group_ = data.comm().split(replica_.index, data.index, "shard group");
    replica_group_ = data.comm().split(data.size + shard_.index, data.index, "replicas");
  }
  if (shard_.size > 1) shard_.communicator = shard_group_ ? shard_group_.get() : data.communicator;
  if (replica_.size > 1) replica_.communicator = replica_group_ ? replica_group_.get() : data.communicator;
  find_machines();
}

void Mesh::find_machines() {
  if (first().size == 1 || current_device().type == DeviceType::kCuda) return;
  Communicator& all = first().comm();
  const MachineGrid grid = MachineGrid::of(all.machines());
  if (!grid.has_stages()) return;
  const int machine = first().index / grid.ranks, lane = first().index % grid.ranks;
  auto ranks = all.split(machine, first().index, "ranks of a machine");
  const std::vector<int64_t> read = all_gather_values(all, ranks->shares_memory(), "memory of machines");
  if (std::find(read.begin(), read.end(), 0) != read.end()) return;
  machine_group_ = std::move(ranks);
  lane_group_ = all.split(grid.machines + lane, first().index, "lanes between machines");
  machine_ = Axis(*machine_group_);
  lane_ = Axis(*lane_group_);
}

}  // namespace lockstep
