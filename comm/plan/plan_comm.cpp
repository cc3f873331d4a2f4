#include "comm/plan/plan_comm.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "comm/machine_grid.h"
#include "comm/queued_comm.h"

namespace lockstep {
namespace {

class PlanChannel final : public Channel {
 public:
  // `ranks`: of the job, of which this one is ranks[me].
  PlanChannel(std::vector<int> ranks, int me, const PlannedMachines& machines)
      : ranks_(std::move(ranks)), me_(me), planned_(machines) {
    for (const int rank : ranks_) machines_.push_back(planned_.ranks > 0 ? rank / planned_.ranks : 0);
    machines_ = MachineGrid::numbered(std::move(machines_));
  }

  int rank() const override { return me_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  std::string_view backend() const override { return planned_.gpus ? "nccl" : "plan"; }
  bool shares_memory() const override { return !planned_.gpus && machines_.back() == 0; }
  std::vector<int> machines() const override { return machines_; }
  void run(const Call&) override {}
  std::shared_ptr<Channel> split(const Call& call) override {
    if (call.color < 0) return nullptr;
    if (call.stride == 0) {
      check(call.color == 0, to_text(call), ": a plan of rank ", me_, " of ", size(),
            " cannot tell which other ranks have color ", call.color);
      return std::make_shared<PlanChannel>(ranks_, me_, planned_);
    }
    const int place = me_ / call.stride % call.extent;
    std::vector<int> line;
    for (int i = 0; i < call.extent; ++i) line.push_back(ranks_[static_cast<size_t>(me_ + (i - place) * call.stride)]);
    return std::make_shared<PlanChannel>(std::move(line), place, planned_);
  }
  void finish_sends(const std::function<bool()>&) override {}
  void abort(const Error&) override {}
  std::optional<Error> failure() const override { return {}; }
  std::shared_ptr<const Work::Watch> watch() override { return nullptr; }
  bool close(Stream&) override { return true; }
  double simulated_end(const Call& call, double begin_s) override;

 private:
  // Bytes that this rank sends in a call to ranks of other machines, those that it copies from ranks of its own, and
  // rounds, one after the other.
  struct Load {
    double away = 0, here = 0, rounds = 0;
  };
  Load load_of(const Call& call) const { return planned_.gpus ? load_by_nccl(call) : load_by_mpi(call); }
  Load load_by_mpi(const Call& call) const;
  Load load_by_nccl(const Call& call) const;
  Load direct_load(const Call& all_to_all) const;
  bool here(int rank) const { return machines_[static_cast<size_t>(rank)] == machines_[static_cast<size_t>(me_)]; }

  const std::vector<int> ranks_;
  const int me_;
  const PlannedMachines planned_;
  std::vector<int> machines_;  // by rank: Communicator::machines
};

// An all_to_all: each pair of ranks by itself, in either backend.
PlanChannel::Load PlanChannel::direct_load(const Call& call) const {
  Load load;
  const auto width = static_cast<double>(size_of(call.dtype));
  for (int r = 0; r < size(); ++r) {
    const auto i = static_cast<size_t>(r);
    if (r == me_) continue;
    if (here(r)) load.here += static_cast<double>(call.counts[i]) * width;
    else load.away += static_cast<double>(call.send_counts[i]) * width;
  }
  load.rounds = std::ceil((size() - 1.0) / kMessagesUnderWay);
  return load;
}

// As MpiChannel makes these calls (comm/mpi/mpi_comm.cpp).
PlanChannel::Load PlanChannel::load_by_mpi(const Call& call) const {
  Load load;
  const auto width = static_cast<double>(size_of(call.dtype));
  const auto bytes = [&](int64_t elements) { return static_cast<double>(elements) * width; };
  const MachineGrid grid = MachineGrid::of(machines_);
  const bool one_machine = machines_.back() == 0;
  const double doublings = std::ceil(std::log2(size()));
  switch (call.kind) {
    case CallKind::kAllGather: {
      const auto own = bytes(call.counts[static_cast<size_t>(me_)]);
      const bool in_stages = grid.machines > 1;
      // What comes from ranks of this machine: of all machines, where it comes in stages.
      for (int r = 0; r < size(); ++r)
        if (r != me_ && (in_stages ? r % grid.ranks != me_ % grid.ranks : here(r)))
          load.here += bytes(call.counts[static_cast<size_t>(r)]);
      if (one_machine) break;
      if (in_stages && !is_small(call)) {
        load.away = own * (grid.machines - 1);
        for (const int extent : grid.steps()) load.rounds += extent - 1;
        break;
      }
      for (int r = 0; r < size(); ++r)
        if (!here(r)) load.away += own;
      load.rounds = is_small(call) ? doublings : std::ceil((size() - 1.0) / kMessagesUnderWay);
      break;
    }
    case CallKind::kAllToAll: return direct_load(call);
    case CallKind::kReduceScatter:
      for (int r = 0; r < size(); ++r)
        if (r != me_) (here(r) ? load.here : load.away) += bytes(call.counts[static_cast<size_t>(r)]);
      load.rounds = std::ceil((size() - 1.0) / kMessagesUnderWay);
      break;
    case CallKind::kAllReduce:
    case CallKind::kBroadcast:
      (one_machine ? load.here : load.away) += bytes(call.numel);
      load.rounds = doublings;
      break;
    default: break;
  }
  return load;
}

// By NCCL's rings (comm/nccl/nccl_channel.cpp has the calls): the ranks of a machine are neighbours in a ring, and one
// of them passes on to the next machine whatever the ring carries. A ring is as fast as its slowest hop.
PlanChannel::Load PlanChannel::load_by_nccl(const Call& call) const {
  const auto width = static_cast<double>(size_of(call.dtype));
  double passed = 0, turns = 1;  // bytes that a rank passes on; how often the ring is gone through
  switch (call.kind) {
    case CallKind::kAllToAll: return direct_load(call);
    case CallKind::kAllGather:
    case CallKind::kReduceScatter:
      for (int r = 0; r < size(); ++r)
        if (r != me_) passed += static_cast<double>(call.counts[static_cast<size_t>(r)]) * width;
      break;
    case CallKind::kAllReduce:  // a reduce_scatter and an all_gather
      passed = 2 * static_cast<double>(call.numel) * width * (size() - 1) / size();
      turns = 2;
      break;
    case CallKind::kBroadcast: passed = static_cast<double>(call.numel) * width; break;
    default: return {};
  }
  const int machines = *std::max_element(machines_.begin(), machines_.end()) + 1;
  if (machines == 1) return {.here = passed};
  int sharing = 0;  // ranks of this machine, of which each is given an equal part of what leaves it
  for (int r = 0; r < size(); ++r) sharing += here(r) ? 1 : 0;
  return {.away = passed / sharing, .rounds = turns * (machines - 1)};
}

double PlanChannel::simulated_end(const Call& call, double begin_s) {
  if (!planned_.links || size() == 1) return begin_s;
  const PlannedLinks::Rates& rates = planned_.links->rates();
  const bool one_machine = machines_.back() == 0;
  const Load load = load_of(call);
  const double latency = one_machine ? rates.meeting_s : rates.latency_s;
  // All ranks compare their calls first; those of GPUs within each machine, where they also launch.
  double end = begin_s + (one_machine || planned_.gpus ? rates.meeting_s : latency * std::ceil(std::log2(size())));
  end += load.rounds * latency;
  const int ranks = planned_.ranks > 0 ? planned_.ranks : 1;
  if (load.away > 0) end = planned_.links->carry(end, load.away * ranks, simulated_time->now_s);
  return end + load.here / rates.memory_bytes_s;
}

}  // namespace

double PlannedLinks::carry(double begin_s, double bytes, double now_s) {
  std::erase_if(taken_, [&](const auto& span) { return span.second < now_s; });
  if (bytes <= 0) return begin_s;
  double left = bytes / rates_.bytes_s, at = begin_s;
  std::vector<std::pair<double, double>> added;
  for (const auto& [from, to] : taken_) {
    if (to <= at) continue;
    if (from > at) {
      const double used = std::min(left, from - at);
      added.emplace_back(at, at + used);
      left -= used;
      if (left <= 0) break;
    }
    at = to;
  }
  if (left > 0) added.emplace_back(at, at + left);
  const double end = added.back().second;
  taken_.insert(taken_.end(), added.begin(), added.end());
  std::sort(taken_.begin(), taken_.end());
  return end;
}

std::unique_ptr<Communicator> make_plan_communicator(int rank, int size, const PlannedMachines& machines) {
  check(size >= 1 && rank >= 0 && rank < size && machines.ranks >= 0, "a plan of rank ", rank, " of ", size, ", ",
        machines.ranks, " on a machine");
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<QueuedComm>(std::make_shared<PlanChannel>(std::move(ranks), rank, machines),
                                      Stream::Mode::kInline);
}

}  // namespace lockstep
