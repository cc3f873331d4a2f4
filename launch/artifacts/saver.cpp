#include "launch/artifacts/saver.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <future>
#include <map>

#include "core/base/caught.h"
#include "core/base/flight_recorder.h"
#include "core/base/host.h"
#include "core/base/trace.h"
#include "core/kernels/past_caches.h"
#include "core/state/checkpoint_part.h"
#include "core/tensor/raw_ops.h"
#include "launch/artifacts/state_copy.h"
#include "launch/world/fail_together.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kPollInterval{200};
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

// Which file of a checkpoint this rank writes into, and with whom.
struct FileOfRank {
  int number = 0, files = 0;
  std::vector<size_t> ranks;  // that write into it; the first makes and seals it

  // `said`: by each rank; the first line is its machine.
  FileOfRank(const std::vector<std::string>& said, size_t rank) {
    std::map<std::string, int> number_of;
    const auto machine_of = [&](size_t r) { return said[r].substr(0, said[r].find('\n')); };
    for (size_t r = 0; r < said.size(); ++r) {
      number_of.emplace(machine_of(r), static_cast<int>(number_of.size()));
      if (machine_of(r) == machine_of(rank)) ranks.push_back(r);
    }
    number = number_of[machine_of(rank)];
    files = static_cast<int>(number_of.size());
  }
};

}  // namespace

Saver::Saver(Communicator& comm, std::string checkpoints, const Retention& retention, int64_t elements,
             std::function<void(int64_t step)> before_write, std::string machine)
    : comm_(comm.split(0, comm.rank(), "checkpoint")),
      checkpoints_(std::move(checkpoints)),
      retention_(retention),
      before_write_(std::move(before_write)),
      machine_(machine.empty() ? str(machine_id(), " ", host_name()) : std::move(machine)),
      memory_(current_device().type == DeviceType::kCuda ? host_memory_of(current_device()) : Device{}),
      busy_(elements > 0),
      thread_([this, elements] {
        trace_owner.rank = comm_->rank();
        if (elements > 0) ready(elements);
        work();
      }) {}

Saver::~Saver() {
  // Otherwise the threads of the other ranks would wait for this rank until the deadline.
  if (std::uncaught_exceptions() > 0) {
    give_up_ = true;
    comm_->abort(rank_is_ending(comm_->rank()));
  }
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Saver::start(const CheckpointInfo& info, const std::vector<StateEntry>& entries, bool retires,
                  std::shared_ptr<const void> held) {
  trace_mark();
  const auto begun = Clock::now();
  finish();
  held_ = std::move(held);
  if (held_) entries_ = entries, copied_ = Event();
  else copy(entries);
  info_ = info;
  info_.ranks = comm_->size();
  retires_ = retires;
  report_ = {info.step, 1e3 * seconds_since(begun), 0};
  {
    std::lock_guard lock(mutex_);
    busy_ = true;
    copies_ = !live_.empty();
  }
  changed_.notify_all();
}

void Saver::let_change() {
  std::unique_lock lock(mutex_);
  if (!copies_) return;
  const auto begun = Clock::now();
  changed_.wait(lock, [&] { return !copies_; });
  report_.stall_ms += 1e3 * seconds_since(begun);
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

void Saver::ready(int64_t elements) {
  try {
    reserve(elements);
    std::memset(buffer_.write(), 0, static_cast<size_t>(buffer_.bytes()));
  } catch (const std::exception&) {
    // The first save tries again and reports an error.
  }
  std::lock_guard lock(mutex_);
  busy_ = false;
  changed_.notify_all();
}

void Saver::reserve(int64_t elements) {
  if (buffer_.defined() && buffer_.numel() == elements) return;
  entries_.clear();
  buffer_ = Tensor();  // free the old buffer before allocating the new one
  WithMemoryUse use(MemoryUse::kInHost);
  WithMemoryFor named("the copy for a checkpoint");
  try {
    buffer_ = Tensor::unallocated({elements}, DType::kFloat32, memory_);
    buffer_.allocate();
  } catch (const Error&) {
    if (memory_ == Device{}) throw;
    memory_ = {};  // so much memory cannot be pinned: use pageable memory, which is slower to copy to
    reserve(elements);
  }
}

void Saver::copy(const std::vector<StateEntry>& entries) {
  int64_t total = 0;
  for (const StateEntry& e : entries) total += e.data.numel();
  reserve(total);
  entries_ = entries;
  // While the next step computes, which leaves the state as it is until its update.
  const bool beside = current_stream().mode() == Stream::Mode::kInline &&
                      std::all_of(entries.begin(), entries.end(), [](const StateEntry& e) {
                        return !e.scales && e.data.dtype() == DType::kFloat32 && e.data.device() == Device{};
                      });
  if (beside) live_ = entries;
  else copy_state(entries, buffer_, places_of(entries));
  int64_t at = 0;
  for (StateEntry& e : entries_) {
    const int64_t n = e.data.numel();
    e.data = buffer_.slice(0, at, at + n);
    e.scales = Tensor();
    at += n;
  }
  copied_ = current_stream().record();
}

// On the saver's thread.
void Saver::copy_beside() {
  const TraceSpan span("copy_to_save", buffer_.bytes());
  for (size_t i = 0; i < live_.size(); ++i)
    copy_past_caches(static_cast<float*>(entries_[i].data.write()), static_cast<const float*>(live_[i].data.read()),
                     entries_[i].data.numel());
  live_.clear();
  {
    std::lock_guard lock(mutex_);
    copies_ = false;
  }
  changed_.notify_all();
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

// Runs `mine` on all ranks and returns what it returned on each. Throws on all where it throws on one
// (fail_together.h). A rank with a slow disk must not count as lost: ranks that are done wait in repeated short
// collectives, not in one that would reach its deadline. Few collectives, since each waits for the busiest rank.
std::vector<std::string> Saver::together(const std::function<std::string()>& mine) {
  enum : int64_t { kWorking, kFailed, kDone, kDoneWithText };
  std::string text;
  std::exception_ptr failed;
  const auto done = std::async(std::launch::async, [&] {
    try {
      text = mine();
    } catch (...) {
      failed = std::current_exception();
    }
  });
  std::vector<int64_t> states;
  try {
    do {
      const bool ready = done.wait_for(kPollInterval) == std::future_status::ready;
      const int64_t state = !ready ? kWorking : failed ? kFailed : text.empty() ? kDone : kDoneWithText;
      states = all_gather_values(*comm_, state, "checkpoint");
    } while (std::find(states.begin(), states.end(), kWorking) != states.end());
  } catch (...) {
    give_up_ = true;  // so that the future's destructor does not wait long for the write
    throw;
  }
  const auto any = [&](int64_t state) { return std::find(states.begin(), states.end(), state) != states.end(); };
  const auto rethrow = [&] {
    if (failed) std::rethrow_exception(failed);
  };
  if (any(kFailed)) fail_together(*comm_, rethrow, "checkpoint");
  return any(kDoneWithText) ? all_gather_text(*comm_, text, "checkpoint") : std::vector<std::string>(states.size());
}

// Writes the file of this rank's machine together with the ranks that share it. `said`: by each rank, its machine and
// its slices. Returns the slices of each file, as text, from the rank that sealed it.
std::vector<std::string> Saver::write(const std::string& pending, const std::vector<std::string>& said, int& files) {
  trace_mark();
  const FileOfRank mine(said, static_cast<size_t>(comm_->rank()));
  const bool leads = static_cast<size_t>(comm_->rank()) == mine.ranks[0];
  files = mine.files;
  std::optional<PartWriter> file;
  const auto places = together([&] {
    std::vector<std::vector<StoredSlice>> writers;
    for (size_t r : mine.ranks) writers.push_back(parse_slices(said[r].substr(said[r].find('\n') + 1), "checkpoint"));
    file.emplace(part_path(pending, mine.number, mine.files), mine.number, std::move(writers));
    return leads ? file->reserve() : std::string();
  });
  const auto hashes = together([&] {
    if (before_write_) before_write_(info_.step);
    return file->write(places[mine.ranks[0]], entries_, &give_up_);
  });
  return together([&] {
    if (!leads) return std::string();
    std::vector<std::string> of_file;
    for (size_t r : mine.ranks) of_file.push_back(hashes[r]);
    return slices_text(file->finish(of_file));
  });
}

void Saver::save() {
  trace_mark();
  const auto begun = Clock::now();
  const TraceSpan span("save", buffer_.bytes());
  FlightPhase phase("save");
  const bool first = comm_->rank() == 0;
  if (!live_.empty()) copy_beside();
  try {
    const std::string pending = pending_checkpoint(checkpoints_, info_.step);
    const auto said = together([&] {
      copied_.synchronize();
      if (first) begin_checkpoint(pending);
      return str(machine_, "\n", slices_text(slices_of(entries_)));
    });
    int files = 0;
    const auto written = write(pending, said, files);
    together([&] {
      if (!first) return std::string();
      std::vector<StoredSlice> all;
      for (const std::string& text : written) {
        if (text.empty()) continue;  // of a rank that sealed no file
        for (StoredSlice& s : parse_slices(text, "checkpoint")) all.push_back(std::move(s));
      }
      commit_checkpoint(checkpoints_, info_, all, files);
      if (retires_) retire_checkpoints(checkpoints_, info_.step, retention_);
      return std::string();
    });
    held_.reset();
    std::lock_guard lock(mutex_);
    report_.seconds = seconds_since(begun);
    completed_.push_back(report_);
  } catch (...) {
    const Error error = as_error(std::current_exception());
    std::string what = error.what();
    if (error.code() == ExitCode::kNumeric && !error.is_secondary())
      what = str("step ", info_.step, ": ", what,
                 "; this state is not saved, and earlier checkpoints are kept: resume one of ",
                 "them with a lower optim.lr, or look for the cause with train.anomaly=true");
    failure_.emplace(error.with_message(what));
    held_.reset();
    if (first) clean_checkpoints(checkpoints_);
  }
}

}  // namespace lockstep
