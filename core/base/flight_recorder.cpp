#include "core/base/flight_recorder.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <map>
#include <mutex>
#include <utility>

#include "core/base/system_call.h"

namespace lockstep {
namespace flight {

constexpr uint64_t kMagic = 0x3248474C464B434C;  // "LCKFLGH2" of this layout
constexpr size_t kLanes = 32, kEvents = 64, kText = 128;

// A record with one writer; a reader that meets a write in progress (an odd version) tries again. What it holds is
// stored with release and loaded with acquire, so that none of it is seen before, or after, its version.
struct Entry {
  std::atomic<uint32_t> version;
  std::atomic<int32_t> call;
  std::atomic<int64_t> number, begin_ns, end_ns;
  std::atomic<uint64_t> text[kText / sizeof(uint64_t)];
};

struct Lane {
  std::atomic<int64_t> thread;  // 0: free
  std::atomic<uint64_t> ended;  // events written so far
  Entry now;
  Entry events[kEvents];
};

}  // namespace flight

struct FlightMemory {
  std::atomic<uint64_t> magic;
  std::atomic<int64_t> process;
  std::atomic<uint32_t> step_version;
  std::atomic<int64_t> step, total;
  std::atomic<double> loss, items_per_s, step_ms, waited_ms;
  std::atomic<int64_t> slow_from;
  std::atomic<double> slow_mb_s;
  flight::Lane lanes[flight::kLanes];
};

namespace {

using namespace flight;

int64_t monotonic_ns() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

struct Plain {
  std::string text;
  int64_t number = -1, begin_ns = 0, end_ns = 0;
  bool call = false;
};

void write_entry(Entry& entry, std::string_view text, int64_t number, bool call, int64_t begin_ns, int64_t end_ns) {
  const uint32_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  uint64_t words[kText / sizeof(uint64_t)] = {};
  text.copy(reinterpret_cast<char*>(words), kText - 1);
  for (size_t i = 0; i < std::size(words); ++i) entry.text[i].store(words[i], std::memory_order_release);
  entry.number.store(number, std::memory_order_release);
  entry.call.store(call, std::memory_order_release);
  entry.begin_ns.store(begin_ns, std::memory_order_release);
  entry.end_ns.store(end_ns, std::memory_order_release);
  entry.version.store(version + 2, std::memory_order_release);
}

bool read_entry(const Entry& entry, Plain& out) {
  for (int attempt = 0; attempt < 8; ++attempt) {
    const uint32_t before = entry.version.load(std::memory_order_acquire);
    uint64_t words[kText / sizeof(uint64_t)];
    for (size_t i = 0; i < std::size(words); ++i) words[i] = entry.text[i].load(std::memory_order_acquire);
    char text[kText];
    std::memcpy(text, words, kText);
    text[kText - 1] = '\0';
    out.text = text;
    out.number = entry.number.load(std::memory_order_acquire);
    out.call = entry.call.load(std::memory_order_acquire) != 0;
    out.begin_ns = entry.begin_ns.load(std::memory_order_acquire);
    out.end_ns = entry.end_ns.load(std::memory_order_acquire);
    if (before % 2 == 0 && entry.version.load(std::memory_order_relaxed) == before) return true;
  }
  return false;  // its writer was stopped in the middle of it
}

// The calling thread's lane, and the phases around its innermost one.
struct Thread {
  Lane* lane = nullptr;
  bool refused = false;  // more threads than lanes
  struct Level {
    std::string text;
    int64_t number, begin_ns;
    bool call;
  };
  std::vector<Level> levels;

  ~Thread() {
    if (lane) lane->thread.store(0, std::memory_order_release);
  }
  bool ready() {
    if (lane) return true;
    FlightMemory* memory = flight_memory.load(std::memory_order_acquire);
    if (!memory || refused) return false;
    const auto self = static_cast<int64_t>(::syscall(SYS_gettid));
    for (Lane& l : memory->lanes) {
      int64_t free = 0;
      if (!l.thread.compare_exchange_strong(free, self)) continue;
      lane = &l;
      return true;
    }
    refused = true;
    return false;
  }
  void begin(std::string_view what, int64_t number, bool call) {
    if (!ready()) return;
    levels.push_back({std::string(what), number, monotonic_ns(), call});
    show();
  }
  void end() {
    if (!lane || levels.empty()) return;
    const Level& l = levels.back();
    const uint64_t n = lane->ended.load(std::memory_order_relaxed);
    write_entry(lane->events[n % kEvents], l.text, l.number, l.call, l.begin_ns, monotonic_ns());
    lane->ended.store(n + 1, std::memory_order_release);
    levels.pop_back();
    show();
  }
  void show() {
    if (levels.empty()) return write_entry(lane->now, {}, -1, false, 0, 0);
    const Level& l = levels.back();
    write_entry(lane->now, l.text, l.number, l.call, l.begin_ns, 0);
  }
};
thread_local Thread this_thread;

}  // namespace

Descriptor make_flight_memory() {
  Descriptor memory(::memfd_create("lockstep-flight", MFD_CLOEXEC));
  require_done(memory && ::ftruncate(memory.number(), sizeof(FlightMemory)) == 0, ExitCode::kStorage,
               "cannot make memory for the flight recorder");
  return memory;
}

void start_flight_recorder(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_NONBLOCK | O_CLOEXEC));
  struct stat about {};
  require_done(file && ::fstat(file.number(), &about) == 0, ExitCode::kStorage, "cannot open ", path);
  require(S_ISREG(about.st_mode) && about.st_size == sizeof(FlightMemory), ExitCode::kStorage, path,
          ": is no memory of a flight recorder");
  void* memory = ::mmap(nullptr, sizeof(FlightMemory), PROT_READ | PROT_WRITE, MAP_SHARED, file.number(), 0);
  require_done(memory != MAP_FAILED, ExitCode::kStorage, "cannot map ", path);
  require(static_cast<FlightMemory*>(memory)->magic.load() == 0, ExitCode::kStorage, path,
          ": another process records into it");
  auto* made = static_cast<FlightMemory*>(memory);  // zeros are the initial state of every member
  made->process.store(::getpid(), std::memory_order_relaxed);
  made->magic.store(kMagic, std::memory_order_release);
  flight_memory.store(made, std::memory_order_release);
}

void FlightPhase::begin(std::string_view what) {
  on_ = true;
  this_thread.begin(what, -1, false);
}
void FlightPhase::end() { this_thread.end(); }

void begin_flight_call(std::string_view what, int64_t number) {
  if (!flight_recording()) return;
  if (!this_thread.levels.empty() && this_thread.levels.back().call) this_thread.end();
  this_thread.begin(what, number, true);
}
void end_flight_call() {
  if (flight_recording() && !this_thread.levels.empty() && this_thread.levels.back().call) this_thread.end();
}

namespace {

// By rank of the job, since the last step.
std::mutex transfers_mutex;
std::map<int, double> fastest_mb_s;

}  // namespace

void record_flight_transfer(int from, int64_t bytes, double seconds) {
  constexpr int64_t kLeast = 4 << 10;  // smaller ones say how long a message takes, and not how fast the link is
  if (!flight_recording() || bytes < kLeast || seconds <= 0) return;
  std::lock_guard lock(transfers_mutex);
  double& fastest = fastest_mb_s[from];
  fastest = std::max(fastest, 1e-6 * static_cast<double>(bytes) / seconds);
}

void record_flight_step(const FlightStep& s) {
  FlightMemory* m = flight_memory.load(std::memory_order_acquire);
  if (!m) return;
  std::pair<int, double> slowest{-1, 0};
  {
    std::lock_guard lock(transfers_mutex);
    for (auto& [from, mb_s] : fastest_mb_s)
      if (slowest.first < 0 || mb_s < slowest.second) slowest = {from, mb_s};
    fastest_mb_s.clear();
  }
  const uint32_t version = m->step_version.load(std::memory_order_relaxed);
  m->step_version.store(version + 1, std::memory_order_relaxed);
  m->step.store(s.step, std::memory_order_release);
  m->total.store(s.total, std::memory_order_release);
  m->loss.store(s.loss, std::memory_order_release);
  m->items_per_s.store(s.items_per_s, std::memory_order_release);
  m->step_ms.store(s.step_ms, std::memory_order_release);
  m->waited_ms.store(s.waited_ms, std::memory_order_release);
  m->slow_from.store(slowest.first, std::memory_order_release);
  m->slow_mb_s.store(slowest.second, std::memory_order_release);
  m->step_version.store(version + 2, std::memory_order_release);
}

FlightReader::FlightReader(const Descriptor& file) : seen_(kLanes) {
  void* memory = ::mmap(nullptr, sizeof(FlightMemory), PROT_READ, MAP_SHARED, file.number(), 0);
  require_done(memory != MAP_FAILED, ExitCode::kStorage, "cannot map the flight recorder's memory");
  memory_ = static_cast<const FlightMemory*>(memory);
}

FlightReader::~FlightReader() { ::munmap(const_cast<FlightMemory*>(memory_), sizeof(FlightMemory)); }

std::optional<FlightState> FlightReader::read() {
  const FlightMemory& m = *memory_;
  if (m.magic.load(std::memory_order_acquire) != kMagic) return {};
  FlightState out;
  out.process = m.process.load(std::memory_order_relaxed);
  for (int attempt = 0; attempt < 8; ++attempt) {
    const uint32_t before = m.step_version.load(std::memory_order_acquire);
    out.step = {m.step.load(std::memory_order_acquire),      m.total.load(std::memory_order_acquire),
                m.loss.load(std::memory_order_acquire),      m.items_per_s.load(std::memory_order_acquire),
                m.step_ms.load(std::memory_order_acquire),   m.waited_ms.load(std::memory_order_acquire),
                m.slow_from.load(std::memory_order_acquire), m.slow_mb_s.load(std::memory_order_acquire)};
    if (before % 2 == 0 && m.step_version.load(std::memory_order_relaxed) == before) break;
  }
  for (size_t i = 0; i < kLanes; ++i) {
    const Lane& lane = m.lanes[i];
    const int64_t thread = lane.thread.load(std::memory_order_acquire);
    Plain now;
    if (thread != 0 && read_entry(lane.now, now) && !now.text.empty())
      out.lanes.push_back({thread, now.text, now.number, now.call, now.begin_ns});
    const uint64_t ended = lane.ended.load(std::memory_order_acquire);
    for (uint64_t n = std::max(seen_[i], ended > kEvents ? ended - kEvents : 0); n < ended; ++n)
      if (Plain e; read_entry(lane.events[n % kEvents], e))
        out.events.push_back({e.text, thread, e.number, e.call, e.begin_ns, e.end_ns});
    seen_[i] = ended;
  }
  std::stable_sort(out.events.begin(), out.events.end(),
                   [](const FlightEvent& a, const FlightEvent& b) { return a.end_ns < b.end_ns; });
  return out;
}

}  // namespace lockstep
