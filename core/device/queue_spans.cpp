#include "core/device/queue_spans.h"

#include <utility>

namespace lockstep {

QueueSpans::QueueSpans(DeviceQueue& queue) : queue_(queue), track_("GPU stream") { follow(); }
QueueSpans::~QueueSpans() { leave(); }

// The device is idle when it notes the time, so that it does so between the two looks at the host's clock.
void QueueSpans::align() {
  queue_.record()->wait();
  const int64_t before = trace_now_ns();
  auto origin = queue_.note_time();
  if (!origin) return;
  origin->wait();
  const int64_t after = trace_now_ns();
  std::lock_guard lock(mutex_);
  under_way_.clear();
  origin_ = std::move(origin);
  origin_ns_ = before + (after - before) / 2;
  aligned_for_ = trace_started_ns();
}

void QueueSpans::run(const std::function<void()>& launch, const Span& span) {
  if (aligned_for_ != trace_started_ns()) align();
  Noted noted{span, queue_.note_time(), nullptr};
  launch();
  if (!noted.begin || !origin_) return;
  noted.end = queue_.note_time();
  std::lock_guard lock(mutex_);
  under_way_.push_back(std::move(noted));
}

void QueueSpans::collect() {
  std::lock_guard lock(mutex_);
  for (; !under_way_.empty() && under_way_.front().end->done(); under_way_.pop_front()) {
    Noted& n = under_way_.front();
    const auto ns = [&](DeviceTime& time) {
      return origin_ns_ + static_cast<int64_t>(1e9 * time.seconds_since(*origin_));
    };
    n.span.begin_ns = ns(*n.begin);
    n.span.end_ns = ns(*n.end);
    n.span.self_ns = n.span.end_ns - n.span.begin_ns;
    track_.write(n.span);
  }
}

}  // namespace lockstep
