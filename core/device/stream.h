// Stream: tasks that run in order; Event: a point in a stream. A CPU compute stream runs tasks inline, on the calling
// thread; communication streams, and every stream of the async test device, run them on a thread of their own; a GPU's
// stream is a queue of its backend, into which tasks launch kernels; a meta device's stream drops them. Streams are
// owned by the code that runs ranks (launch/world), by communicators, and by tests; events are shared values.
#pragma once

#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/trace.h"
#include "core/device/backend.h"
#include "core/device/device.h"
#include "core/device/simulated_time.h"
#include "core/device/thread_pool.h"

namespace lockstep {

class QueueSpans;  // core/device/queue_spans.h

using Seconds = std::chrono::duration<double>;

class Event {
 public:
  Event() = default;                    // already done
  static Event at(double simulated_s);  // where time is simulated
  // Blocks the host. Returns false if the deadline passes first. Rethrows the exception of work before the event.
  bool synchronize(std::optional<Seconds> deadline = {}) const;
  bool done() const;

 private:
  friend class Stream;
  struct State;
  void check_failures() const;
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  using Task = std::function<void(Parallel&)>;
  enum class Mode { kInline, kThread, kQueue, kDrop };
  enum class Priority { kNormal, kHigh };  // has an effect on GPUs only

  // `threads`: compute threads, including the stream's own. A meta device's mode is always kDrop. A GPU's is kQueue
  // unless kThread is given: then tasks run on a host thread, which may wait for other threads, and launch kernels into
  // a queue of the stream's own. Throws ExitCode::kDevice if the GPU does not exist.
  Stream(Device device, Mode mode, int threads = 1, Priority priority = Priority::kNormal);
  ~Stream();  // waits for all enqueued tasks
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Device& device() const { return device_; }
  Mode mode() const { return mode_; }
  int threads() const { return pool_.threads(); }
  // The queue of a GPU's stream; null for others. It outlives the stream while memory blocks refer to it.
  const std::shared_ptr<DeviceQueue>& device_queue() const { return device_queue_; }

  // Runs task(Parallel&) after all tasks enqueued before. Inline streams run it at once. So do a GPU's, but the kernels
  // and copies that it launches run later, so a task must not read or write memory itself. An exception of a task on a
  // threaded stream cancels the later tasks, and synchronize() throws it, as it does a GPU's own errors.
  // A trace gets the task's run time, with `cost`; of a GPU's queue both the host's time for launching it and the
  // device's own.
  template <class F>
  void enqueue(F&& task, const TaskCost& cost = {}) {
    if (mode_ == Mode::kDrop) return drop(cost);
    if (mode_ == Mode::kThread) return push(Task(std::forward<F>(task)), span_of_task(cost));
    const TraceSpan span(span_of_task(cost));
    if (mode_ == Mode::kQueue && tracing()) return run_timed([&] { task(*device_queue_); }, cost);
    task(mode_ == Mode::kInline ? static_cast<Parallel&>(pool_) : static_cast<Parallel&>(*device_queue_));
  }
  Event record();
  // Later tasks run after `event`. Blocks the host only if this stream is inline, or a GPU's that waits for a thread's
  // event.
  void wait(const Event& event);
  // For a GPU's stream: marks all later work as failed. Its events, and those of streams that wait for it, throw
  // `error`.
  void fail(std::exception_ptr error);
  // Blocks the host until all tasks are done. Returns false if the deadline passes first.
  bool synchronize(std::optional<Seconds> deadline = {});
  // When the tasks so far are done, where time is simulated.
  double simulated_s() const;

 private:
  friend class Event;
  void drop(const TaskCost& cost);
  void run_timed(const std::function<void()>& launch, const TaskCost& cost);
  void push(Task task, const std::optional<Span>& span);
  void loop();
  std::exception_ptr device_error();
  struct Queue;

  Device device_;
  Mode mode_;
  bool beside_ = false;     // dropped tasks would run beside the host
  double simulated_s_ = 0;  // when they would be done
  ThreadPool pool_;
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<DeviceQueue> device_queue_;
  std::unique_ptr<QueueSpans> spans_;  // from the first trace on
  // For a GPU's stream: its own failure, and those of the streams that it waited for.
  struct Failure;
  using Failures = std::vector<std::shared_ptr<Failure>>;
  std::shared_ptr<Failure> failure_;
  std::shared_ptr<const Failures> failures_;
};

}  // namespace lockstep
