#include "launch/checkpoints/saver.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <map>

#include "core/base/caught.h"
#include "core/base/flight_recorder.h"
#include "core/base/host.h"
#include "core/base/trace.h"
#include "core/kernels/attention/past_caches.h"
#include "core/state/checkpoint_part.h"
#include "core/state/manifest.h"
#include "core/tensor/raw_ops.h"
#include "launch/checkpoints/state_copy.h"
#include "launch/world/together.h"

namespace lockstep {
namespace {

using Clock = std::chrono::steady_clock;
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

Saver::Saver(Communicator& comm, std::string checkpoints, SaverOptions options)
    : comm_(comm.copy_for_host("checkpoint")),
      checkpoints_(std::move(checkpoints)),
      options_(std::move(options)),
      memory_(current_device().type == DeviceType::kCuda ? host_memory_of(current_device()) : Device{}),
      busy_(options_.elements > 0),
      pace_(options_.bytes_per_s),
      thread_([this] {
        trace_owner.rank = comm_->rank();
        if (options_.elements > 0) ready(options_.elements);
        work();
      }) {}

Saver::~Saver() {
  // Otherwise the threads of the other ranks would wait for this rank until the deadline.
  if (std::uncaught_exceptions() > 0) {
    pace_.give_up();
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

std::vector<std::string> Saver::together(const std::function<std::string()>& mine) {
  return lockstep::together(
      *comm_, mine, [this] { pace_.give_up(); }, "checkpoint");
}

// Writes the file of this rank's machine together with the ranks that share it. `said`: by each rank, its machine and
// its slices. Returns the slices of each file, as text, from the rank that sealed it.
std::vector<std::string> Saver::write(const std::string& pending, const std::vector<std::string>& said, bool leads,
                                      int& files) {
  trace_mark();
  const FileOfRank mine(said, static_cast<size_t>(comm_->rank()));
  files = mine.files;
  std::optional<PartWriter> file;
  const auto places = together([&] {
    std::vector<std::vector<StoredSlice>> writers;
    for (size_t r : mine.ranks) writers.push_back(parse_slices(said[r].substr(said[r].find('\n') + 1), "checkpoint"));
    file.emplace(part_path(pending, mine.number, mine.files), mine.number, std::move(writers));
    return leads ? file->reserve() : std::string();
  });
  const auto hashes = together([&] {
    if (options_.before_write) options_.before_write(info_.step);
    pace_.begin();
    return file->write(places[mine.ranks[0]], entries_, &pace_);
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
  const std::string machine = options_.machine.empty() ? machine_name() : options_.machine;
  bool leads = comm_->rank() == 0, holds_folder = leads;
  if (!live_.empty()) copy_beside();
  try {
    const std::string pending = pending_checkpoint(checkpoints_, info_.step);
    const auto said = together([&] {
      copied_.synchronize();
      if (holds_folder) begin_checkpoint(pending);
      return str(machine, "\n", slices_text(slices_of(entries_)));
    });
    const FileOfRank file(said, static_cast<size_t>(comm_->rank()));
    leads = static_cast<size_t>(comm_->rank()) == file.ranks[0];
    if (options_.per_machine) {
      // The same manifest everywhere, whose text says what computed it: on rank 0.
      const auto infos = together([&] {
        if (leads && !holds_folder) begin_checkpoint(pending);
        return comm_->rank() == 0 ? info_text(info_) : std::string();
      });
      info_ = parse_info(infos[0], "checkpoint");
      holds_folder = leads;
    }
    int files = 0;
    const auto written = write(pending, said, leads, files);
    together([&] {
      if (!holds_folder) return std::string();
      std::vector<StoredSlice> all;
      for (const std::string& text : written) {
        if (text.empty()) continue;  // of a rank that sealed no file
        for (StoredSlice& s : parse_slices(text, "checkpoint")) all.push_back(std::move(s));
      }
      commit_checkpoint(checkpoints_, info_, all, files);
      if (retires_) retire_checkpoints(checkpoints_, info_.step, options_.retention);
      return std::string();
    });
    held_.reset();
    if (options_.saved) options_.saved(info_.step, retires_);
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
    if (holds_folder) clean_checkpoints(checkpoints_);
  }
}

}  // namespace lockstep
