#include "launch/saver.h"

#include <chrono>
#include <cstring>
#include <exception>

#include "launch/agree.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

}  // namespace

Saver::Saver(Communicator& comm, std::string checkpoints, const Retention& retention)
    : comm_(comm.split(0, comm.rank(), "checkpoint")),
      checkpoints_(std::move(checkpoints)),
      retention_(retention),
      thread_([this] { work(); }) {}

Saver::~Saver() {
  // The peers' threads would wait for this rank's until the deadline.
  if (std::uncaught_exceptions() > 0) {
    give_up_ = true;
    comm_->abort(ending_text(comm_->rank()));
  }
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Saver::start(const CheckpointInfo& info, const std::vector<StateEntry>& entries) {
  const auto begun = Clock::now();
  finish();
  copy(entries);
  info_ = info;
  report_ = {info.step, 1e3 * seconds_since(begun), 0};
  {
    std::lock_guard lock(mutex_);
    busy_ = true;
  }
  changed_.notify_all();
}

void Saver::finish() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !busy_; });
  if (const auto failure = std::exchange(failure_, std::nullopt)) throw Error(*failure);
}

std::vector<SaveReport> Saver::completed() {
  std::lock_guard lock(mutex_);
  return std::exchange(completed_, {});
}

void Saver::copy(const std::vector<StateEntry>& entries) {
  int64_t total = 0;
  for (const StateEntry& e : entries) total += e.data.numel();
  if (!buffer_.defined() || buffer_.numel() != total) {
    entries_.clear();
    buffer_ = Tensor();  // before the next: not both at once
    buffer_ = Tensor::unallocated({total}, DType::kFloat32, Device{});
    buffer_.allocate();
  }
  entries_ = entries;
  Stream& now = current_stream();
  int64_t at = 0;
  for (StateEntry& e : entries_) {
    const int64_t n = e.data.numel();
    const float* from = e.data.values<float>();
    e.data = buffer_.slice(0, at, at + n);
    float* to = e.data.mutable_values<float>();
    at += n;
    now.enqueue([from, to, n](Parallel& parallel) {
      auto body = [&](int64_t begin, int64_t end) {
        std::memcpy(to + begin, from + begin, static_cast<size_t>(end - begin) * sizeof(float));
      };
      parallel.run(n, 1 << 18, body);
    });
  }
  now.synchronize();
}

void Saver::work() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return busy_ || ending_; });
    if (!busy_) return;
    lock.unlock();
    save();
    lock.lock();
    busy_ = false;
    changed_.notify_all();
  }
}

void Saver::save() {
  const auto begun = Clock::now();
  const bool first = comm_->rank() == 0;
  try {
    const std::string pending = pending_checkpoint(checkpoints_, info_.step);
    std::vector<StoredSlice> mine;
    const auto together = [&](const std::function<void()>& step) { agree(*comm_, step, "checkpoint"); };
    together([&] {
      if (first) begin_checkpoint(pending);
    });
    together([&] { mine = write_part(pending, comm_->rank(), comm_->size(), entries_, &give_up_); });
    const auto texts = all_gather_text(*comm_, slices_text(mine), "checkpoint");
    together([&] {
      if (!first) return;
      std::vector<StoredSlice> all;
      for (const std::string& text : texts)
        for (StoredSlice& s : parse_slices(text, "checkpoint")) all.push_back(std::move(s));
      commit_checkpoint(checkpoints_, info_, all, comm_->size());
    });
    if (first) retire_checkpoints(checkpoints_, info_.step, retention_);
    report_.seconds = seconds_since(begun);
    std::lock_guard lock(mutex_);
    completed_.push_back(report_);
  } catch (const std::exception& e) {
    const auto* error = dynamic_cast<const Error*>(&e);
    failure_.emplace(error ? error->code() : ExitCode::kInternal, e.what());
    if (first) clean_checkpoints(checkpoints_);
  }
}

}  // namespace lockstep
