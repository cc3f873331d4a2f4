#include "core/base/trace.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

namespace lockstep {
namespace {

constexpr size_t kSpansPerThread = 1 << 16;  // 96 bytes each

struct Registry {
  std::mutex mutex;
  std::vector<std::shared_ptr<SpanRing>> rings;
  std::map<int, const char*> tracks;  // names, by number
  std::atomic<int64_t> started_ns = 0;
  std::mutex sources_mutex;  // apart: sources write spans
  std::set<TraceSource*> sources;
};
Registry& registry() {
  static Registry instance;
  return instance;
}

struct OfThread {
  std::shared_ptr<SpanRing> ring;  // from its first span on
  int64_t nested_ns = 0;           // of spans that ended within the one that is open
};
thread_local OfThread of_thread;

SpanRing& ring_of(OfThread& thread) {
  if (!thread.ring) {
    thread.ring = std::make_shared<SpanRing>(kSpansPerThread, trace_thread());
    std::lock_guard lock(registry().mutex);
    registry().rings.push_back(thread.ring);
  }
  return *thread.ring;
}

}  // namespace

int64_t trace_now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Each field is an atomic, so that a reader may look while the writer comes round again. It sees that by begun_: who
// has read a field of a newer span sees the count that was stored before it.
void SpanRing::write(const Span& span) {
  const uint64_t n = begun_.load(std::memory_order_relaxed);
  begun_.store(n + 1, std::memory_order_relaxed);
  constexpr auto kOrder = std::memory_order_release;
  Entry& entry = entries_[n % entries_.size()];
  entry.name.store(span.name, kOrder);
  entry.backward.store(span.backward, kOrder);
  entry.rank.store(span.rank, kOrder);
  entry.begin_ns.store(span.begin_ns, kOrder);
  entry.end_ns.store(span.end_ns, kOrder);
  entry.self_ns.store(span.self_ns, kOrder);
  entry.bytes.store(span.bytes, kOrder);
  entry.flops.store(span.flops, kOrder);
  entry.module.store(span.module, kOrder);
  entry.range.store(span.range, kOrder);
  entry.file.store(span.file, kOrder);
  done_.store(n + 1, kOrder);
}

int64_t SpanRing::read(std::vector<Span>& out) {
  constexpr auto kOrder = std::memory_order_acquire;
  const uint64_t size = entries_.size(), end = done_.load(kOrder);
  uint64_t first = std::max(read_, end > size ? end - size : 0);
  const auto kept = static_cast<std::ptrdiff_t>(out.size());
  for (uint64_t n = first; n < end; ++n) {
    const Entry& entry = entries_[n % size];
    Span& span = out.emplace_back();
    span.name = entry.name.load(kOrder);
    span.backward = entry.backward.load(kOrder);
    span.rank = entry.rank.load(kOrder);
    span.thread = thread_;
    span.begin_ns = entry.begin_ns.load(kOrder);
    span.end_ns = entry.end_ns.load(kOrder);
    span.self_ns = entry.self_ns.load(kOrder);
    span.bytes = entry.bytes.load(kOrder);
    span.flops = entry.flops.load(kOrder);
    span.module = entry.module.load(kOrder);
    span.range = entry.range.load(kOrder);
    span.file = entry.file.load(kOrder);
  }
  const uint64_t begun = begun_.load(std::memory_order_relaxed);
  const uint64_t whole = std::min(end, begun > size ? begun - size : 0);  // older ones may be mixed with newer
  if (whole > first) {
    out.erase(out.begin() + kept, out.begin() + kept + static_cast<std::ptrdiff_t>(whole - first));
    first = whole;
  }
  const auto lost = static_cast<int64_t>(first - read_);
  read_ = end;
  return lost;
}

void start_trace() {
  Registry& all = registry();
  std::lock_guard lock(all.mutex);
  std::vector<Span> dropped;
  for (auto& ring : all.rings) ring->read(dropped);
  all.started_ns = trace_now_ns();
  trace_is_on = true;
}

void stop_trace() { trace_is_on = false; }

Trace take_trace() {
  Registry& all = registry();
  {
    std::lock_guard lock(all.sources_mutex);
    for (TraceSource* source : all.sources) source->collect();
  }
  std::lock_guard lock(all.mutex);
  Trace trace;
  for (auto& ring : all.rings) trace.lost += ring->read(trace.spans);
  std::erase_if(all.rings, [](const auto& ring) { return ring.use_count() == 1; });  // its thread has ended
  std::erase_if(trace.spans, [&](const Span& s) { return s.begin_ns < all.started_ns; });
  std::sort(trace.spans.begin(), trace.spans.end(),
            [](const Span& a, const Span& b) { return a.begin_ns < b.begin_ns; });
  return trace;
}

namespace {
int next_number() {
  static std::atomic<int> numbers{0};
  return numbers++;
}
}  // namespace

int trace_thread() {
  thread_local const int number = next_number();
  return number;
}

int64_t trace_started_ns() { return registry().started_ns; }

TraceTrack::TraceTrack(const char* name) {
  const int number = next_number();
  ring_ = std::make_shared<SpanRing>(kSpansPerThread, number);
  std::lock_guard lock(registry().mutex);
  registry().rings.push_back(ring_);
  registry().tracks[number] = name;
}

const char* trace_track_name(int thread) {
  std::lock_guard lock(registry().mutex);
  const auto found = registry().tracks.find(thread);
  return found == registry().tracks.end() ? nullptr : found->second;
}

void TraceSource::follow() {
  std::lock_guard lock(registry().sources_mutex);
  registry().sources.insert(this);
}
void TraceSource::leave() {
  std::lock_guard lock(registry().sources_mutex);
  registry().sources.erase(this);
}

const char* lasting_name(std::string_view name) {
  static std::mutex mutex;
  static std::set<std::string, std::less<>> names;
  std::lock_guard lock(mutex);
  const auto found = names.find(name);
  return (found != names.end() ? found : names.emplace(name).first)->c_str();
}

void TraceSpan::begin_range(std::string_view name) {
  span_.emplace();
  span_->name = lasting_name(name);
  span_->rank = trace_owner.rank;
  span_->module = trace_owner.module;
  span_->backward = trace_owner.backward;
  span_->range = true;
  begin();
}

void TraceSpan::begin(const char* name, int64_t bytes) {
  span_.emplace();
  span_->name = name;
  span_->rank = trace_owner.rank;
  span_->module = trace_owner.module;
  span_->bytes = bytes;
  begin();
}

void record_mark(const std::source_location& here) {
  Span mark;
  mark.name = here.function_name();
  mark.file = here.file_name();
  mark.rank = trace_owner.rank;
  mark.begin_ns = mark.end_ns = trace_now_ns();
  ring_of(of_thread).write(mark);
}

void TraceSpan::begin() {
  OfThread& mine = of_thread;
  ring_of(mine);
  around_ns_ = std::exchange(mine.nested_ns, 0);
  span_->begin_ns = trace_now_ns();
}

void TraceSpan::end() {
  OfThread& mine = of_thread;
  span_->end_ns = trace_now_ns();
  const int64_t time = span_->end_ns - span_->begin_ns;
  span_->self_ns = time - mine.nested_ns;
  mine.nested_ns = around_ns_ + time;
  mine.ring->write(*span_);
}

}  // namespace lockstep
