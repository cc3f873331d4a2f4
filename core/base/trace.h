// Trace: what the threads of this process did and when, as spans kept in memory: tasks of streams, waits, batches that
// a loader built, files that were saved. Off unless somebody started it, and then a span costs one relaxed load.
// While it is on, each thread writes to a ring of its own without locks; the oldest spans give way to new ones.
// One trace per process.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

struct Span {
  const char* name = "";  // of the operation, or of the kernel where no operation named its tasks; never freed
  bool backward = false;  // of the operation's backward pass
  int rank = 0;           // that it worked for
  int thread = 0;         // that it ran on: a number that no other thread of this process has
  int64_t begin_ns = 0, end_ns = 0;  // by std::chrono::steady_clock
  int64_t self_ns = 0;               // its time without that of the spans within it
  int64_t bytes = 0;                 // read and written; by an exchange: sent to other ranks; by a save: written
  double flops = 0;                  // floating-point operations: a multiply-add is two
  const char* module = nullptr;      // whose pass it belongs to, by its dotted name; null where none is known
  bool range = false;                // a part of the host's work (a module, a phase of the step) around other spans
  const char* file = nullptr;        // of a mark, an instant without time: where it stands; `name` is the function
};

// Of one thread, which alone calls write(); one other thread at a time may read() meanwhile.
class SpanRing {
 public:
  explicit SpanRing(size_t capacity, int thread = 0) : entries_(capacity), thread_(thread) {}
  void write(const Span& span);
  // Appends what was written since the last read, oldest first. Returns how many spans were overwritten before they
  // could be read.
  int64_t read(std::vector<Span>& out);
  int thread() const { return thread_; }

 private:
  struct Entry {
    std::atomic<const char*> name{nullptr};
    std::atomic<bool> backward{false};
    std::atomic<int> rank{0};
    std::atomic<int64_t> begin_ns{0}, end_ns{0}, self_ns{0}, bytes{0};
    std::atomic<double> flops{0};
    std::atomic<const char*> module{nullptr};
    std::atomic<bool> range{false};
    std::atomic<const char*> file{nullptr};
  };
  std::vector<Entry> entries_;
  const int thread_;
  std::atomic<uint64_t> begun_{0}, done_{0};  // spans whose writing has begun, and ended
  uint64_t read_ = 0;                         // the reader's
};

inline std::atomic<bool> trace_is_on{false};  // set by start_trace() and stop_trace()
inline bool tracing() { return trace_is_on.load(std::memory_order_relaxed); }

void start_trace();  // what an earlier trace left is dropped
void stop_trace();
struct Trace {
  std::vector<Span> spans;  // in the order in which they began
  int64_t lost = 0;         // more were overwritten
};
// Spans that ended since the start, or since the last call. From any thread, also while the trace goes on.
Trace take_trace();
int trace_thread();          // Span::thread of the calling thread
int64_t trace_now_ns();      // the clock of spans
int64_t trace_started_ns();  // when the newest trace was started; 0: none was

// Spans that are not a host thread's, such as of a GPU's stream, with a number among those of threads. Written by one
// thread at a time.
class TraceTrack {
 public:
  explicit TraceTrack(const char* name);  // a literal
  void write(const Span& span) { ring_->write(span); }

 private:
  std::shared_ptr<SpanRing> ring_;
};
const char* trace_track_name(int thread);  // of a TraceTrack; null: it is a thread

// What learns of its spans later. take_trace() asks for those that are known, on its own thread.
class TraceSource {
 public:
  virtual ~TraceSource() = default;
  virtual void collect() = 0;

 protected:
  void follow();  // from now on
  void leave();   // called by the destructor of who followed
};

// Whom the calling thread works for, and with which operation.
struct TraceOwner {
  const char* op = nullptr;  // none
  bool backward = false;
  int rank = 0;
  const char* module = nullptr;
};
inline constinit thread_local TraceOwner trace_owner;

// Names what the calling thread enqueues meanwhile. `op` must live as long as the program, as a literal does.
class TraceOp {
 public:
  explicit TraceOp(const char* op, bool backward = false)
      : before_(std::exchange(trace_owner, TraceOwner{op, backward, trace_owner.rank, trace_owner.module})) {}
  ~TraceOp() { trace_owner = before_; }
  TraceOp(const TraceOp&) = delete;

 private:
  TraceOwner before_;
};

const char* lasting_name(std::string_view name);  // the same characters, which stay as long as the program

// Where tracing is on: the spans of the calling thread meanwhile belong to this module. An empty name changes nothing.
class TraceModule {
 public:
  explicit TraceModule(std::string_view name) : before_(trace_owner.module) {
    if (tracing() && !name.empty()) trace_owner.module = lasting_name(name);
  }
  ~TraceModule() { trace_owner.module = before_; }
  TraceModule(const TraceModule&) = delete;

 private:
  const char* before_;
};

// What a stream's task does (core/kernels/cost.h counts it for kernels).
struct TaskCost {
  const char* kernel = "other task";  // the span's name where no operation gave one
  int64_t bytes = 0;
  double flops = 0;
  double per_flop = 1;  // what one takes, in times of one of a large product
};

// The span of a task that the calling thread enqueues now and that runs later; none where tracing is off.
inline std::optional<Span> span_of_task(const TaskCost& cost) {
  if (!tracing()) return std::nullopt;
  Span span;
  span.name = trace_owner.op ? trace_owner.op : cost.kernel;
  span.backward = trace_owner.op && trace_owner.backward;
  span.rank = trace_owner.rank;
  span.module = trace_owner.module;
  span.bytes = cost.bytes;
  span.flops = cost.flops;
  return span;
}

void record_mark(const std::source_location& here);
// Records that the calling function was reached: the paths of docs/architecture.md are checked by these marks.
inline void trace_mark(const std::source_location& here = std::source_location::current()) {
  if (tracing()) record_mark(here);
}

// Records the time from here to the end of the scope, on the calling thread. Spans of a thread may lie within another.
class TraceSpan {
 public:
  explicit TraceSpan(const char* name, int64_t bytes = 0) {
    if (tracing()) begin(name, bytes);
  }
  // A range (Span::range); none where the name is empty.
  struct Range {
    std::string_view name;
  };
  explicit TraceSpan(const Range& range) {
    if (tracing() && !range.name.empty()) begin_range(range.name);
  }
  explicit TraceSpan(const std::optional<Span>& task) : span_(task) {
    if (span_) begin();
  }
  ~TraceSpan() {
    if (span_) end();
  }
  TraceSpan(const TraceSpan&) = delete;
  // Known only at the end.
  void add_bytes(int64_t bytes) {
    if (span_) span_->bytes += bytes;
  }

 private:
  void begin(const char* name, int64_t bytes);
  void begin_range(std::string_view name);
  void begin();
  void end();
  std::optional<Span> span_;
  int64_t around_ns_ = 0;  // of the spans that ended before this one within the span around it
};

}  // namespace lockstep
