// Stream: work in order; Event: a point in a stream. A CPU compute stream runs inline; communication streams, and every
// stream of the async test device, are first-in-first-out threads; a stream of a meta device drops its work. Streams
// are owned by whoever runs ranks (launch/world), by communicators, and by tests; events are shared values. Knows
// nothing of tensors.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

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
  std::shared_ptr<State> state_;
};

class Stream {
 public:
  using Task = std::function<void(Parallel&)>;
  enum class Mode { kInline, kThread, kDrop };

  // `threads` compute threads, the stream's own among them. A meta device's mode is kDrop, whatever is asked for.
  Stream(Device device, Mode mode, int threads = 1);
  ~Stream();  // finishes what was enqueued
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;

  const Device& device() const { return device_; }
  Mode mode() const { return mode_; }
  int threads() const { return pool_.threads(); }

  // Runs task(Parallel&) after all that was enqueued before; inline streams run it now. What an earlier task of a
  // threaded stream threw stops the later ones and is thrown by synchronize().
  template <class F>
  void enqueue(F&& task) {
    if (mode_ == Mode::kInline) task(static_cast<Parallel&>(pool_));
    else if (mode_ == Mode::kThread) push(Task(std::forward<F>(task)));
  }
  Event record();
  void wait(const Event& event);  // later tasks run after it; the host goes on
  // Blocks the host until all is done. False when the deadline passed first.
  bool synchronize(std::optional<Seconds> deadline = {});

 private:
  void push(Task task);
  void loop();
  struct Queue;

  Device device_;
  Mode mode_;
  ThreadPool pool_;
  std::unique_ptr<Queue> queue_;
};

}  // namespace lockstep
