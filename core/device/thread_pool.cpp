#include "core/device/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>

#include "core/base/caught.h"
#include "core/base/partition.h"
#include "core/device/allocator.h"
#include "core/device/cpu_quota.h"

#if defined(__SSE__)
#include <pmmintrin.h>
#endif

namespace lockstep {
namespace {

// About 30 us: longer than the gap between two kernels, shorter than a time slice that another process could use.
constexpr int kSpins = 4000;
constexpr int kPieceBits = 32;
constexpr uint64_t kPieceMask = (uint64_t(1) << kPieceBits) - 1;

void relax() {
#if defined(__SSE__)
  _mm_pause();
#endif
}

// Scratch belongs to the thread, so that pools of several streams share it on one thread.
struct Scratch {
  void* data[4] = {};
  int64_t size[4] = {};
  ~Scratch() {
    for (void* p : data) free_bytes(p);
  }
};
thread_local Scratch thread_scratch;

// The pool whose pieces this thread is running: a kernel that calls another on it runs that one where it is.
thread_local const ThreadPool* inside = nullptr;

void end(std::vector<std::thread>& workers, std::atomic<bool>& stop, std::atomic<uint32_t>& ticket) {
  stop = true;
  ticket.fetch_add(1, std::memory_order_release);
  ticket.notify_all();
  for (auto& w : workers) w.join();
}

}  // namespace

void flush_denormals() {
#if defined(__SSE__)
  _MM_SET_FLUSH_ZERO_MODE(_MM_FLUSH_ZERO_ON);
  _MM_SET_DENORMALS_ZERO_MODE(_MM_DENORMALS_ZERO_ON);
#endif
}

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  static const double quota = cpu_quota();  // threads beyond it would wait for each other while all are held back
  return std::max(1, static_cast<int>(std::min<double>(CPU_COUNT(&set), quota)));
}
std::string cores_text(int64_t cores) { return std::to_string(cores) + (cores == 1 ? " core" : " cores"); }

ThreadPool::ThreadPool(int threads) : shares_(static_cast<size_t>(std::max(threads, 1))) {
  flush_denormals();
  try {
    for (int i = 1; i < threads; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (const std::system_error& e) {
    const std::string whose = str("compute thread ", workers_.size() + 1, " of ", threads);
    end(workers_, stop_, ticket_);
    throw thread_refused(whose, e);
  } catch (...) {
    end(workers_, stop_, ticket_);
    throw;
  }
}

ThreadPool::~ThreadPool() { end(workers_, stop_, ticket_); }

void* ThreadPool::scratch(int slot, int64_t bytes) {
  Scratch& s = thread_scratch;
  if (s.size[slot] < bytes) {
    free_bytes(s.data[slot]);
    s.size[slot] = 0;
    s.data[slot] = nullptr;
    int64_t size = round_up(bytes + bytes / 4, 4096);
    s.data[slot] = allocate_bytes(size, {}, MemoryUse::kScratch);
    s.size[slot] = size;
  }
  return s.data[slot];
}

void ThreadPool::run(int64_t n, int64_t grain, Body body) {
  if (n <= 0) return;
  if (workers_.empty() || n <= grain || inside == this) {
    body(0, n);
    return;
  }
  // A piece that throws, for want of memory for instance, ends neither a worker's thread nor the wait for the others.
  std::mutex mutex;
  std::exception_ptr error;
  auto guarded = [&](int64_t begin, int64_t end) {
    try {
      body(begin, end);
    } catch (...) {
      std::lock_guard lock(mutex);
      if (!error) error = std::current_exception();
    }
  };
  const Body all_pieces = guarded;
  // Four pieces a thread even out cores of unlike speed.
  piece_ = std::max(grain, ceil_div(n, static_cast<int64_t>(threads()) * 4));
  n_ = n;
  body_ = &all_pieces;
  const int64_t pieces = ceil_div(n, piece_);
  finished_.store(0, std::memory_order_relaxed);
  const auto shares = static_cast<int64_t>(shares_.size());
  for (int64_t i = 0; i < shares; ++i) {
    const auto begin = static_cast<uint64_t>(ceil_div(pieces * i, shares)),
               end = static_cast<uint64_t>(ceil_div(pieces * (i + 1), shares));
    shares_[static_cast<size_t>(i)].state.store(end << kPieceBits | begin, std::memory_order_release);
  }
  ticket_.fetch_add(1, std::memory_order_release);
  ticket_.notify_all();
  take_pieces(0);
  for (int spin = 0; finished_.load(std::memory_order_acquire) != pieces; ++spin)
    if (spin < kSpins) relax();
    else std::this_thread::yield();
  if (error) std::rethrow_exception(error);
}

int64_t ThreadPool::Share::take() {
  const auto next_of = [](uint64_t s) {
    const uint64_t next = s & kPieceMask, end = s >> kPieceBits;
    return next < end ? static_cast<int64_t>(next) : -1;
  };
  // Looked at first: a share that is done is not written to.
  return next_of(state.load(std::memory_order_relaxed)) < 0 ? -1
                                                            : next_of(state.fetch_add(1, std::memory_order_acq_rel));
}

void ThreadPool::take_pieces(int thread) {
  const ThreadPool* before = std::exchange(inside, this);
  for (size_t i = 0; i < shares_.size(); ++i) {
    Share& share = shares_[(static_cast<size_t>(thread) + i) % shares_.size()];
    for (int64_t piece = share.take(); piece >= 0; piece = share.take()) {
      const int64_t begin = piece * piece_;
      (*body_)(begin, std::min(begin + piece_, n_));
      finished_.fetch_add(1, std::memory_order_release);
    }
  }
  inside = before;
}

void ThreadPool::work(int thread) {
  flush_denormals();
  uint32_t seen = 0;
  for (;;) {
    for (int spin = 0; ticket_.load(std::memory_order_acquire) == seen; ++spin) {
      if (spin < kSpins) relax();
      else ticket_.wait(seen, std::memory_order_acquire);
    }
    seen = ticket_.load(std::memory_order_acquire);
    if (stop_) return;
    take_pieces(thread);
  }
}

}  // namespace lockstep
