// Context: the only ambient state of a rank's thread: current stream, gradient mode, anomaly mode, what memory is for,
// the loss's gradient, and the key of random numbers. Thread-local; changed by RAII only.
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

// What random numbers are keyed by, beside the site that asks: never the rank.
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
  const void* recording = nullptr;  // a StreamGraph whose work is being recorded: its memory is its own
  std::string_view memory_for;      // module, operation or group that allocates, in out-of-memory messages
  double loss_gradient = 0;         // what backward will begin with; 0: not known yet
  RandomKey random;
  SiteCalls site_calls;
};

Context& context();

// The current stream; a one-thread inline CPU stream where none was set.
Stream& current_stream();
// Throws kInternal where the current stream's queue is another than this: memory of the allocator is in order with that
// one's work then. No stream, or a CPU's, is none other.
void check_no_other_queue(const DeviceQueue& queue);
inline const Device& current_device() { return current_stream().device(); }

// A random site: the hash of its dotted name mixed with how often it was called in this micro-batch.
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

// What backward will begin with from the loss computed meanwhile: its gradients can be computed along with it
// (cross_entropy). Another beginning costs time and a rounding; in fp16 and bf16 a very different one costs more, as
// gradients that left the type's range, above or below, do not come back by rescaling.
class WithLossGradient {
 public:
  explicit WithLossGradient(double gradient) : before_(std::exchange(context().loss_gradient, gradient)) {}
  ~WithLossGradient() { context().loss_gradient = before_; }
  WithLossGradient(const WithLossGradient&) = delete;

 private:
  double before_;
};

// What tensors allocated meanwhile count as.
class WithMemoryUse {
 public:
  explicit WithMemoryUse(MemoryUse use) : before_(std::exchange(context().memory_use, use)) {}
  ~WithMemoryUse() { context().memory_use = before_; }
  WithMemoryUse(const WithMemoryUse&) = delete;

 private:
  MemoryUse before_;
};

// For whom tensors are allocated meanwhile; an empty name leaves what is there. `name` must outlive this.
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

// A stretch of a rank's work on a GPU, by name, on the timeline of a profiler (NVTX); nothing elsewhere.
class WithRange {
 public:
  explicit WithRange(std::string_view name)
      : queue_(context().stream && !name.empty() ? context().stream->device_queue().get() : nullptr) {
    if (queue_) queue_->begin_range(std::string(name).c_str());
  }
  ~WithRange() {
    if (queue_) queue_->end_range();
  }
  WithRange(const WithRange&) = delete;

 private:
  DeviceQueue* queue_;
};

// One micro-batch: its key, and call counts from zero; or from where they stood, to draw the same numbers again.
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
