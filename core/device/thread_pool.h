// ThreadPool: the compute threads of one rank. The caller is one of them; workers spin briefly between kernels, then
// sleep. Owned by a stream; one kernel at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "core/kernels/parallel.h"

namespace lockstep {

// Denormal numbers cost tens of cycles each: compute threads flush them to zero. Sets the calling thread.
void flush_denormals();

// Cores that this process may use: those of its affinity mask, and no more than its control groups give it time for
// (core/device/cpu_quota.h), at least one.
int available_cores();
std::string cores_text(int64_t cores);  // "1 core", "2 cores"

class ThreadPool final : public Parallel {
 public:
  explicit ThreadPool(int threads);
  ~ThreadPool() override;
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  void run(int64_t n, int64_t grain, Body body) override;
  int threads() const override { return static_cast<int>(workers_.size()) + 1; }
  void* scratch(int slot, int64_t bytes) override;

 private:
  // Consecutive pieces: the end and the next one, in one word.
  struct alignas(64) Share {
    std::atomic<uint64_t> state{0};
    int64_t take();  // the next piece, or -1 where none is left
  };
  void work(int thread);
  void take_pieces(int thread);

  std::vector<std::thread> workers_;
  // One job at a time, cut into pieces, and these into a share for each thread, the caller's first: from one kernel to
  // the next a thread finds its part of the data in its own caches. Whoever has done its share helps the others. A
  // worker that comes late, when the machine is busy, finds nothing left instead of holding up the caller, and touches
  // the job only while it owns a piece of it.
  std::vector<Share> shares_;
  std::atomic<int64_t> finished_{0};
  std::atomic<uint32_t> ticket_{0};  // counts jobs: what workers sleep on
  std::atomic<bool> stop_{false};
  const Body* body_ = nullptr;
  int64_t n_ = 0, piece_ = 1;
};

}  // namespace lockstep
