#include "core/device/queue_spans.h"

#include <limits>
#include <utility>

namespace lockstep {

QueueSpans::QueueSpans(DeviceQueue& queue) : queue_(queue), track_("GPU stream") { follow(); }
QueueSpans::~QueueSpans() { leave(); }

// The device is idle when it notes the time, so that it does so between two looks at the host's clock: the closest ones
// of several.
void QueueSpans::align() {
  constexpr int kTries = 5;
  queue_.record()->wait();
  int64_t closest = std::numeric_limits<int64_t>::max();
  std::lock_guard lock(mutex_);
  under_way_.clear();
  for (int i = 0; i < kTries; ++i) {
    const int64_t before = trace_now_ns();
    auto noted = queue_.note_time();
    noted->wait();
    const int64_t between = trace_now_ns() - before;
    if (between >= closest) continue;
    closest = between;
    origin_ = std::move(noted);
    origin_ns_ = before + between / 2;
  }
  aligned_for_ = trace_started_ns();
}

void QueueSpans::run(const std::function<void()>& launch, const Span& span) {
  Noted noted{span, queue_.note_time(), nullptr};
  if (!noted.begin) return launch();
  if (aligned_for_ != trace_started_ns()) {
    align();
    noted.begin = queue_.note_time();
  }
  launch();
  noted.end = queue_.note_time();
  std::lock_guard lock(mutex_);
  under_way_.push_back(std::move(noted));
}

void QueueSpans::collect() {
  std::lock_guard lock(mutex_);
  for (; !under_way_.empty() && under_way_.front().end->done(); under_way_.pop_front()) {
    Noted& n = under_way_.front();
    const auto ns = [](double seconds) { return static_cast<int64_t>(1e9 * seconds); };
    n.span.begin_ns = origin_ns_ + ns(n.begin->seconds_since(*origin_));
    n.span.self_ns = ns(n.end->seconds_since(*n.begin));
    n.span.end_ns = n.span.begin_ns + n.span.self_ns;
    track_.write(n.span);
    origin_ = n.end;  // a device's differences are the coarser, the longer they are
    origin_ns_ = n.span.end_ns;
  }
}

}  // namespace lockstep
