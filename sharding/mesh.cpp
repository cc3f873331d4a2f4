#include "sharding/mesh.h"

namespace lockstep {

Mesh::Mesh(const Axis& data, int group) : data_(data) {
  require(group >= 1 && data.size % group == 0, ExitCode::kConfig, "sharding.group: ", group, " does not divide the ",
          data.size, " ranks; use a divisor, or 0 for one group of all");
  shard_.size = group;
  shard_.index = data.index % group;
  replica_.size = data.size / group;
  replica_.index = data.index / group;
  if (shard_.size > 1) gathers_ = data.comm().split_axis(1, group, "parameters' channel");
  if (shard_.size > 1 && replica_.size > 1) {
    shard_group_ = data.comm().split_axis(1, group, "shard group");
    replica_group_ = data.comm().split_axis(group, replica_.size, "replicas");
  }
  if (shard_.size > 1) shard_.communicator = shard_group_ ? shard_group_.get() : data.communicator;
  if (replica_.size > 1) replica_.communicator = replica_group_ ? replica_group_.get() : data.communicator;
  find_machines();
}

void Mesh::find_machines() {
  if (first().size == 1) return;
  Communicator& all = first().comm();
  const MachineGrid grid = MachineGrid::of(all.machines());
  if (grid.machines == 1) return;
  if (grid.ranks > 1) {
    machine_group_ = all.split_axis(1, grid.ranks, "ranks of a machine");
    machine_ = Axis(*machine_group_);
    lane_group_ = all.split_axis(grid.ranks, grid.machines, "lanes between machines");
  }
  grid_ = grid;
  lane_ = lane_group_ ? Axis(*lane_group_) : first();
  const std::vector<int> steps = grid.steps();
  if (steps.size() == 1) {
    lane_steps_.push_back(lane_);
    return;
  }
  int stride = grid.ranks;
  for (const int extent : steps) {
    step_groups_.push_back(all.split_axis(stride, extent, "steps between machines"));
    lane_steps_.emplace_back(*step_groups_.back());
    stride *= extent;
  }
}

}  // namespace lockstep
