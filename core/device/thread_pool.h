// ThreadPool: the compute threads of one rank. The caller is one of them; workers spin briefly between kernels, then
// sleep. Owned by a stream; one kernel at a time.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <vector>

#include "core/kernels/parallel.h"

namespace lockstep {

// Denormal numbers cost tens of cycles each: compute threads flush them to zero. Sets the calling thread.
void flush_denormals();

// Cores that this process may use (its affinity mask).
int available_cores();

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
  void work();
  void take_pieces();

  std::vector<std::thread> workers_;
  // One job at a time, cut into pieces. `state_` holds their number and the next one, so that a worker that comes late,
  // when the machine is busy, finds nothing left instead of holding up the caller, and touches the job only while it
  // owns a piece of it.
  std::atomic<uint64_t> state_{0};
  std::atomic<int64_t> finished_{0};
  std::atomic<uint32_t> ticket_{0};  // counts jobs: what workers sleep on
  std::atomic<bool> stop_{false};
  const Body* body_ = nullptr;
  int64_t n_ = 0, piece_ = 1;
};

}  // namespace lockstep
