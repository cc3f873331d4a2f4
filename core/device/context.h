// Context: the thread-local state of a rank: current stream, gradient mode, anomaly mode, labels of memory, predicted
// loss gradient, key of random numbers. Other thread-local state (logs, traces, scratch) changes no result. Changed
// only by the RAII classes below (With...), which restore the earlier value at the end of their scope.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/device/memory_use.h"
#include "core/device/stream.h"

namespace lockstep {

// Random numbers are a function of this key and of the site (random_site) that draws them, never of the rank.
struct RandomKey {
  uint64_t seed = 0;
  int64_t step = 0;
  std::shared_ptr<const std::vector<int64_t>> samples;  // global index of each row of the micro-batch
};

// How often each random site was called in this micro-batch: (hash of its name, calls).
using SiteCalls = std::vector<std::pair<uint64_t, uint64_t>>;

struct Context {
  Stream* stream = nullptr;
  bool grad = true;
  bool anomaly = false;
  MemoryUse memory_use = MemoryUse::kActivations;
  const void* recording = nullptr;  // the StreamGraph that is being recorded: memory allocated meanwhile belongs to it
  std::string_view memory_for;      // module, operation or group that allocates, in out-of-memory messages
  double loss_gradient = 0;         // predicted gradient of the loss (WithLossGradient); 0: none
  RandomKey random;
  SiteCalls site_calls;
};

Context& context();

// The current stream; where none was set, an inline CPU stream with one thread.
Stream& current_stream();
// Throws kInternal if the current stream is a GPU's whose queue is not `queue`: the allocator orders memory by the
// current stream, so work of another queue could still use it. No current stream, or a CPU stream, is fine.
void check_no_other_queue(const DeviceQueue& queue);
inline const Device& current_device() { return current_stream().device(); }

// A random site: the hash of its dotted name mixed with the number of its calls so far in this micro-batch.
uint64_t random_site(std::string_view dotted_name);

class WithStream {
 public:
  explicit WithStream(Stream& stream) : before_(std::exchange(context().stream, &stream)) {}
  ~WithStream() { context().stream = before_; }
  WithStream(const WithStream&) = delete;

 private:
  Stream* before_;
};

class WithGrad {
 public:
  explicit WithGrad(bool on) : before_(std::exchange(context().grad, on)) {}
  ~WithGrad() { context().grad = before_; }
  WithGrad(const WithGrad&) = delete;

 private:
  bool before_;
};

class NoGrad : public WithGrad {
 public:
  NoGrad() : WithGrad(false) {}
};

class WithAnomaly {
 public:
  explicit WithAnomaly(bool on = true) : before_(std::exchange(context().anomaly, on)) {}
  ~WithAnomaly() { context().anomaly = before_; }
  WithAnomaly(const WithAnomaly&) = delete;

 private:
  bool before_;
};

// Predicts the gradient that backward() will start from (its `seed`) for a loss computed in this scope, so that
// cross_entropy can compute gradients in the forward pass. If the prediction is wrong, gradients are rescaled, at the
// cost of time and one rounding; in fp16 and bf16, values that overflowed or underflowed are not recovered.
class WithLossGradient {
 public:
  explicit WithLossGradient(double gradient) : before_(std::exchange(context().loss_gradient, gradient)) {}
  ~WithLossGradient() { context().loss_gradient = before_; }
  WithLossGradient(const WithLossGradient&) = delete;

 private:
  double before_;
};

// The use under which memory allocated in this scope is counted.
class WithMemoryUse {
 public:
  explicit WithMemoryUse(MemoryUse use) : before_(std::exchange(context().memory_use, use)) {}
  ~WithMemoryUse() { context().memory_use = before_; }
  WithMemoryUse(const WithMemoryUse&) = delete;

 private:
  MemoryUse before_;
};

// The module, operation or group named in out-of-memory messages for allocations in this scope. An empty name changes
// nothing. `name` must outlive this.
class WithMemoryFor {
 public:
  explicit WithMemoryFor(std::string_view name) : before_(context().memory_for) {
    if (!name.empty()) context().memory_for = name;
  }
  ~WithMemoryFor() { context().memory_for = before_; }
  WithMemoryFor(const WithMemoryFor&) = delete;

 private:
  std::string_view before_;
};

// Marks this scope by name on timelines: as a range of a trace, and, if the current stream is a GPU's, of a profiler
// (NVTX).
class WithProfilerRange {
 public:
  explicit WithProfilerRange(std::string_view name)
      : queue_(context().stream && !name.empty() ? context().stream->device_queue().get() : nullptr),
        span_(TraceSpan::Range{name}) {
    if (queue_) queue_->begin_profiler_range(std::string(name).c_str());
  }
  ~WithProfilerRange() {
    if (queue_) queue_->end_profiler_range();
  }
  WithProfilerRange(const WithProfilerRange&) = delete;

 private:
  DeviceQueue* queue_;
  TraceSpan span_;
};

// Sets the random key for one micro-batch. Call counts of sites start at zero, or at `calls`, to draw the same numbers
// again.
class WithRandom {
 public:
  explicit WithRandom(RandomKey key, SiteCalls calls = {})
      : before_(std::exchange(context().random, std::move(key))),
        calls_(std::exchange(context().site_calls, std::move(calls))) {}
  ~WithRandom() {
    context().random = std::move(before_);
    context().site_calls = std::move(calls_);
  }
  WithRandom(const WithRandom&) = delete;

 private:
  RandomKey before_;
  SiteCalls calls_;
};

}  // namespace lockstep
