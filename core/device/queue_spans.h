// QueueSpans: when a GPU did the tasks of a stream, as spans of a trace: the device notes its time before and after
// each task. The clocks are aligned once a trace, by waiting for the queue. Owned by the stream.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>

#include "core/base/trace.h"
#include "core/device/backend.h"

namespace lockstep {

class QueueSpans final : public TraceSource {
 public:
  explicit QueueSpans(DeviceQueue& queue);
  ~QueueSpans() override;

  // Runs `launch`, which enqueues a task; while the queue's work is being recorded without a span, since that work runs
  // later and again.
  void run(const std::function<void()>& launch, const Span& span);
  void collect() override;

 private:
  struct Noted {
    Span span;
    std::shared_ptr<DeviceTime> begin, end;
  };
  void align();

  DeviceQueue& queue_;
  TraceTrack track_;
  std::mutex mutex_;
  std::deque<Noted> under_way_;
  std::shared_ptr<DeviceTime> origin_;
  int64_t origin_ns_ = 0;    // of origin_, by the clock of spans
  int64_t aligned_for_ = 0;  // trace_started_ns() then
};

}  // namespace lockstep
