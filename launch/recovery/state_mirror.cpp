#include "launch/recovery/state_mirror.h"

#include <algorithm>
#include <utility>

#include "core/base/flight_recorder.h"
#include "core/base/trace.h"

namespace lockstep {
namespace {

constexpr int64_t kMostUnderWay = 1 << 22;  // elements that are under way at a time: 16 MiB
constexpr const char* kCopyLabel = "copy of the state";

}  // namespace

std::vector<int> StateMirror::keepers(const std::vector<int>& machine_of) {
  const int machines = 1 + *std::max_element(machine_of.begin(), machine_of.end());
  std::vector<std::vector<int>> ranks(static_cast<size_t>(machines));
  for (size_t r = 0; r < machine_of.size(); ++r)
    ranks[static_cast<size_t>(machine_of[r])].push_back(static_cast<int>(r));
  std::vector<int> out(machine_of.size(), -1);
  for (size_t m = 0; machines > 1 && m < ranks.size(); ++m) {
    const std::vector<int>& next = ranks[(m + 1) % ranks.size()];
    for (size_t i = 0; i < ranks[m].size(); ++i) out[static_cast<size_t>(ranks[m][i])] = next[i % next.size()];
  }
  return out;
}

StateMirror::StateMirror(Communicator& comm, std::vector<int> keeper_of, StateMemory& own, std::vector<Guest> guests)
    : comm_(comm.copy_for_host(kCopyLabel)),
      keeper_of_(std::move(keeper_of)),
      own_(own),
      guests_(std::move(guests)),
      thread_([this] {
        trace_owner.rank = comm_->rank();
        work();
      }) {}

StateMirror::~StateMirror() {
  // Otherwise the threads of the other ranks would wait for this rank until the deadline.
  if (std::uncaught_exceptions() > 0) comm_->abort(rank_is_ending(comm_->rank()));
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void StateMirror::start(int64_t step) {
  finish();
  {
    std::lock_guard lock(mutex_);
    kept_ = own_.keep(step);
    asked_ = step;
  }
  changed_.notify_all();
}

void StateMirror::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return asked_ < 0; });
  if (failure_) std::rethrow_exception(failure_);
}

void StateMirror::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return asked_ >= 0 || ending_; });
    if (asked_ < 0) return;
    const int64_t step = asked_;
    lock.unlock();
    std::exception_ptr failure;
    try {
      copy(step);
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    failure_ = failure;
    asked_ = -1;
    changed_.notify_all();
    if (failure) return;
  }
}

void StateMirror::copy(int64_t step) {
  trace_mark();
  const FlightPhase phase("copy of the state to another machine");
  const Tensor mine = own_.bytes_of(step);
  const int keeper = keeper_of_[static_cast<size_t>(comm_->rank())];
  const int64_t sent = keeper < 0 ? 0 : mine.numel();
  std::vector<Tensor> theirs;
  int64_t most = sent;
  for (Guest& g : guests_) {
    theirs.push_back(g.memory.begin_copy());
    most = std::max(most, theirs.back().numel());
  }
  // Each piece is acknowledged before the next one is sent.
  const Tensor got = Tensor::of(std::vector<float>{1}, {1}), answer = Tensor::of(std::vector<float>{0}, {1});
  for (int64_t at = 0; at < most; at += kMostUnderWay) {
    const auto piece = [&](const Tensor& t) { return t.slice(0, at, std::min(at + kMostUnderWay, t.numel())); };
    const Work sending = at < sent ? comm_->send(piece(mine), keeper, kCopyLabel) : Work();
    for (size_t i = 0; i < guests_.size(); ++i) {
      if (at >= theirs[i].numel()) continue;
      comm_->receive(piece(theirs[i]), guests_[i].rank, kCopyLabel).finish();
      comm_->send(got, guests_[i].rank, kCopyLabel).finish();
    }
    sending.finish();
    if (at < sent) comm_->receive(answer, keeper, kCopyLabel).finish();
  }
  for (Guest& g : guests_) g.memory.end_copy(step);
  comm_->barrier(kCopyLabel);  // only now are all copies there, and the ones before of no use
  std::lock_guard lock(mutex_);
  copied_ = std::exchange(kept_, nullptr);
}

}  // namespace lockstep
