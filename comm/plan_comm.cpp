#include "comm/plan_comm.h"

#include "comm/queued_comm.h"

namespace lockstep {
namespace {

class PlanChannel final : public Channel {
 public:
  PlanChannel(int rank, int size, int group, bool reads) : rank_(rank), size_(size), group_(group), reads_(reads) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string_view backend() const override { return "plan"; }
  bool shares_memory() const override { return reads_; }
  void run(const Call&) override {}
  std::shared_ptr<Channel> split(const Call& call) override {
    if (call.color < 0) return nullptr;
    if (group_ == kWhole) return std::make_shared<PlanChannel>(rank_, size_, kWhole, reads_);
    if (call.color == rank_ / group_) return std::make_shared<PlanChannel>(rank_ % group_, group_, kWhole, reads_);
    check(call.color == size_ + rank_ % group_, to_text(call), ": a plan of rank ", rank_, " of ", size_,
          " with groups of ", group_, " cannot tell which other ranks have color ", call.color);
    return std::make_shared<PlanChannel>(rank_ / group_, size_ / group_, kWhole, reads_);
  }
  void finish_sends(const std::function<bool()>&) override {}
  void abort(const Error&) override {}
  std::optional<Error> failure() const override { return {}; }
  std::shared_ptr<const Work::Watch> watch() override { return nullptr; }
  bool close(Stream&) override { return true; }

  static constexpr int kWhole = 0;  // a further split keeps all ranks together

 private:
  const int rank_, size_, group_;
  const bool reads_;
};

}  // namespace

std::unique_ptr<Communicator> make_plan_communicator(int rank, int size, int group, bool reads) {
  check(size >= 1 && rank >= 0 && rank < size && group >= 1 && size % group == 0, "a plan of rank ", rank, " of ", size,
        ", in groups of ", group);
  return std::make_unique<QueuedComm>(std::make_shared<PlanChannel>(rank, size, group, reads), Stream::Mode::kInline);
}

}  // namespace lockstep
