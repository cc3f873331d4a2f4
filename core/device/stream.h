// Stream: work in order; Event: a point in a stream. A CPU compute stream runs inline; communication streams, and every
// stream of the async test device, are first-in-first-out threads; a GPU's stream is a queue of its backend, in which
// tasks set kernels in motion; a stream of a meta device drops its work. Streams are owned by whoever runs ranks
// (launch/world), by communicators, and by tests; events are shared values.
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
#include "core/device/thread_pool.h"

namespace lockstep {

using Seconds = std::chrono::duration<double>;

class Event {
 public:
  Event() = default;  // already happened
  // Blocks the host. False when the deadline passed first. Rethrows what stopped the work before the event.
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
  enum class Priority { kNormal, kHigh };  // only queues tell them apart

  // `threads` compute threads, the stream's own among them. A meta device's mode is kDrop, whatever is asked for. A
  // GPU's is kQueue, or, where kThread is asked for, a thread that waits for other threads and hands its tasks' kernels
  // to a queue of its own: then neither the host's main thread nor the GPU waits. Throws ExitCode::kDevice where the
  // GPU is not there.
  Stream(Device device, Mode mode, int threads = 1, Priority priority = Priority::kNormal);
  ~Stream();  // finishes what was enqueued
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Device& device() const { return device_; }
  Mode mode() const { return mode_; }
  int threads() const { return pool_.threads(); }
  // Of a GPU's stream; null elsewhere. It outlives the stream where memory still belongs to it.
  const std::shared_ptr<DeviceQueue>& device_queue() const { return device_queue_; }

  // Runs task(Parallel&) after all that was enqueued before. Inline streams run it now. So do queues, but what it hands
  // to the queue runs later: on a GPU a task is kernels and copies, never a look at memory. What an earlier task of a
  // threaded stream threw stops the later ones and is thrown by synchronize(); so are a GPU's own errors.
  // A trace has the time for which the task ran, with `cost`; on a GPU the time for which the host was busy with
  // handing it over, as its kernels' own would need events of the queue around them.
  template <class F>
  void enqueue(F&& task, const TaskCost& cost = {}) {
    if (mode_ == Mode::kDrop) return;
    if (mode_ == Mode::kThread) return push(Task(std::forward<F>(task)), span_of_task(cost));
    const TraceSpan span(span_of_task(cost));
    task(mode_ == Mode::kInline ? static_cast<Parallel&>(pool_) : static_cast<Parallel&>(*device_queue_));
  }
  Event record();
  // Later tasks run after it. The host goes on, but where an inline stream, or a queue, waits for a thread's event.
  void wait(const Event& event);
  // Of a queue: what it does from now on is worthless, as are other queues' events that wait for it. They throw
  // `error`.
  void fail(std::exception_ptr error);
  // Blocks the host until all is done. False when the deadline passed first.
  bool synchronize(std::optional<Seconds> deadline = {});

 private:
  friend class Event;
  void push(Task task, const std::optional<Span>& span);
  void loop();
  std::exception_ptr device_error();
  struct Queue;

  Device device_;
  Mode mode_;
  ThreadPool pool_;
  std::unique_ptr<Queue> queue_;
  std::shared_ptr<DeviceQueue> device_queue_;
  // Of a queue: what failed it, and those that it waited for.
  struct Failure;
  using Failures = std::vector<std::shared_ptr<Failure>>;
  std::shared_ptr<Failure> failure_;
  std::shared_ptr<const Failures> failures_;
};

}  // namespace lockstep
