#include "comm/communicator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "comm/peer_memory.h"

namespace lockstep {
namespace {

constexpr Seconds kPollInterval{0.1};  // how often a wait calls its watch

void wait_watched(const Event& event, const Work::Watch& watch, const std::string& what) {
  const auto start = std::chrono::steady_clock::now();
  while (!event.synchronize(kPollInterval)) watch(std::chrono::steady_clock::now() - start, what);
}

// Plain host memory, which belongs to no stream: the host writes it immediately, and reads it after the work is done.
Tensor host_tensor(int64_t n, DType dtype) {
  const Device here = current_device();
  Tensor t = Tensor::unallocated({n}, dtype, here.has_bytes() ? Device{} : here);
  t.allocate();
  return t;
}

Tensor bytes_tensor(int64_t size) { return host_tensor(size, DType::kUInt8); }

Tensor value_tensor(int64_t value) {
  const Tensor t = host_tensor(1, DType::kInt64);
  if (t.device().has_bytes()) memcpy(t.write(), &value, sizeof value);
  return t;
}

void write_text(const Tensor& to, std::string_view text) {
  if (!text.empty() && to.device().has_bytes()) memcpy(to.write(), text.data(), text.size());
}

}  // namespace

int Communicator::color_of_line(int stride, int extent) const {
  return rank() % stride + rank() / (stride * extent) * stride;
}

std::unique_ptr<Communicator> Communicator::split_axis(int stride, int extent, std::string_view label) {
  return split(color_of_line(stride, extent), rank(), label);
}

Tensor Communicator::registered(int64_t elements, DType dtype) { return Tensor::empty({elements}, dtype); }

const void* Shared::read(int rank, int64_t first, int64_t bytes, void* scratch) const {
  const char* from = static_cast<const char*>((*at)[static_cast<size_t>(rank)]) + first;
  if (in_this_process(rank)) return from;
  memory->read(rank, from, scratch, bytes);
  return scratch;
}

bool Shared::in_this_process(int rank) const { return !memory || memory->is_own(rank); }

Shared Communicator::share(const Tensor&, const std::vector<int64_t>&, std::string_view label) {
  check(false, "share of ", label, ": the ranks of ", backend(), " do not read each other's memory");
  return {};
}

void Work::wait() const {
  Stream& now = current_stream();
  if (queued_ && now.mode() == Stream::Mode::kQueue) {
    if (watch_) (*watch_)(Seconds(0), what_);
    now.wait(event_);
  } else if (watch_)
    now.enqueue([event = event_, watch = watch_, what = what_](Parallel&) { wait_watched(event, *watch, what); });
  else now.wait(event_);
}

void Work::synchronize(Seconds deadline) const {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    const Seconds waited = std::chrono::steady_clock::now() - start;
    const bool done = event_.synchronize(std::clamp(deadline - waited, Seconds(0), kPollInterval));
    // GPU work of a poisoned communicator ends without an error of its own.
    if (watch_ && (!done || queued_)) (*watch_)(waited, what_);
    if (done) return;
    require(waited < deadline, ExitCode::kRankLost, what_, ": not done within ", deadline.count(), " s");
  }
}

int planted_machine_ranks() {
  const char* ranks = std::getenv("LOCKSTEP_TEST_MACHINE_RANKS");
  return ranks ? std::max(1, std::atoi(ranks)) : 0;
}

Error rank_is_ending(int rank) {
  return Error::secondary(ExitCode::kRankLost, str("rank ", rank, " is ending because of an error of its own"));
}

std::vector<int64_t> all_gather_values(Communicator& comm, int64_t mine, std::string_view label) {
  const Tensor in = value_tensor(mine), out = host_tensor(comm.size(), DType::kInt64);
  comm.all_gather(out, in, std::vector<int64_t>(static_cast<size_t>(comm.size()), 1), label).finish();
  if (!out.device().has_bytes()) return std::vector<int64_t>(static_cast<size_t>(comm.size()), mine);
  const auto* values = static_cast<const int64_t*>(out.read());
  return {values, values + comm.size()};
}

std::vector<std::string> all_gather_text(Communicator& comm, std::string_view mine, std::string_view label) {
  const std::vector<int64_t> sizes = all_gather_values(comm, static_cast<int64_t>(mine.size()), label);
  int64_t total = 0;
  for (int64_t size : sizes) total += size;
  const Tensor in = bytes_tensor(static_cast<int64_t>(mine.size())), out = bytes_tensor(total);
  write_text(in, mine);
  comm.all_gather(out, in, sizes, label).finish();
  if (!out.device().has_bytes()) return std::vector<std::string>(sizes.size(), std::string(mine));
  const auto* next = static_cast<const char*>(out.read());
  std::vector<std::string> texts;
  for (int64_t size : sizes) {
    texts.emplace_back(next, static_cast<size_t>(size));
    next += size;
  }
  return texts;
}

std::string broadcast_text(Communicator& comm, std::string_view text, int root, std::string_view label) {
  const Tensor size = value_tensor(static_cast<int64_t>(text.size()));
  comm.broadcast(size, root, label).finish();
  const bool silent = !size.device().has_bytes();
  const Tensor bytes =
      bytes_tensor(silent ? static_cast<int64_t>(text.size()) : *static_cast<const int64_t*>(size.read()));
  if (comm.rank() == root) write_text(bytes, text);
  comm.broadcast(bytes, root, label).finish();
  if (silent) return std::string(text);
  return {static_cast<const char*>(bytes.read()), static_cast<size_t>(bytes.numel())};
}

}  // namespace lockstep
