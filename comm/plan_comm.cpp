#include "comm/plan_comm.h"

#include <numeric>

#include "comm/queued_comm.h"

namespace lockstep {
namespace {

class PlanChannel final : public Channel {
 public:
  // `ranks`: of the job, of which this one is ranks[me].
  PlanChannel(std::vector<int> ranks, int me, const PlannedMachines& machines)
      : ranks_(std::move(ranks)), me_(me), planned_(machines) {
    for (const int rank : ranks_) {
      const int machine = planned_.ranks > 0 ? rank / planned_.ranks : 0;
      const bool next = machines_.empty() || machine != last_machine_;
      machines_.push_back(machines_.empty() ? 0 : machines_.back() + (next ? 1 : 0));
      last_machine_ = machine;
    }
  }

  int rank() const override { return me_; }
  int size() const override { return static_cast<int>(ranks_.size()); }
  std::string_view backend() const override { return "plan"; }
  bool shares_memory() const override { return planned_.reads && machines_.back() == 0; }
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

 private:
  const std::vector<int> ranks_;
  const int me_;
  const PlannedMachines planned_;
  std::vector<int> machines_;  // by rank: Communicator::machines
  int last_machine_ = 0;
};

}  // namespace

std::unique_ptr<Communicator> make_plan_communicator(int rank, int size, const PlannedMachines& machines) {
  check(size >= 1 && rank >= 0 && rank < size && machines.ranks >= 0, "a plan of rank ", rank, " of ", size, ", ",
        machines.ranks, " on a machine");
  std::vector<int> ranks(static_cast<size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return std::make_unique<QueuedComm>(std::make_shared<PlanChannel>(std::move(ranks), rank, machines),
                                      Stream::Mode::kInline);
}

}  // namespace lockstep
