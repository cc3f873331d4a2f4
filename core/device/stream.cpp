#include "core/device/stream.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core/base/caught.h"
#include "core/device/queue_spans.h"

namespace lockstep {

struct Stream::Failure {
  std::mutex mutex;
  std::exception_ptr error;
};

struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  std::optional<double> simulated_s;  // when it would happen
  // A queue's event; all above is a thread's.
  std::shared_ptr<DeviceEvent> device;
  std::shared_ptr<const Stream::Failures> failures;

  void finish(std::exception_ptr e) {
    {
      std::lock_guard lock(mutex);
      done = true;
      error = std::move(e);
    }
    changed.notify_all();
  }
};

namespace {

// Busy for as long as a kernel takes, then at ease.
bool wait_for_device(DeviceEvent& event, std::optional<Seconds> deadline) {
  if (!deadline) {
    event.wait();
    return true;
  }
  const auto start = std::chrono::steady_clock::now();
  for (int turn = 0; !event.done(); ++turn) {
    if (std::chrono::steady_clock::now() - start >= *deadline) return false;
    if (turn < 1000) std::this_thread::yield();
    else std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
}

}  // namespace

Event Event::at(double simulated_s) {
  Event event;
  event.state_ = std::make_shared<State>();
  event.state_->simulated_s = simulated_s;
  return event;
}

bool Event::synchronize(std::optional<Seconds> deadline) const {
  if (!state_) return true;
  if (state_->simulated_s) {
    if (simulated_time) simulated_time->now_s = std::max(simulated_time->now_s, *state_->simulated_s);
    return true;
  }
  const TraceSpan span("wait");
  if (state_->device) {
    if (!wait_for_device(*state_->device, deadline)) return false;
    check_failures();
    return true;
  }
  std::unique_lock lock(state_->mutex);
  auto is_done = [&] { return state_->done; };
  if (deadline) {
    if (!state_->changed.wait_for(lock, *deadline, is_done)) return false;
  } else {
    state_->changed.wait(lock, is_done);
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return true;
}

void Event::check_failures() const {
  for (auto& e : *state_->failures) {
    std::lock_guard lock(e->mutex);
    if (e->error) std::rethrow_exception(e->error);
  }
}

bool Event::done() const {
  if (!state_) return true;
  if (state_->simulated_s) return !simulated_time || *state_->simulated_s <= simulated_time->now_s;
  if (state_->device) {
    if (!state_->device->done()) return false;
    check_failures();
    return true;
  }
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

struct Stream::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  struct Item {
    Task task;
    std::shared_ptr<Event::State> event;  // in place of a task
    std::optional<Span> span;             // of the task, where it is traced
    int rank = 0;                         // whom it works for, for spans that begin within it
  };
  std::deque<Item> items;
  bool stop = false;
  std::exception_ptr error;  // only the stream's thread
  std::thread thread;
};

namespace {

Stream::Mode mode_of(const Device& device, Stream::Mode asked) {
  if (device.type == DeviceType::kCuda && asked != Stream::Mode::kThread) return Stream::Mode::kQueue;
  return device.has_bytes() ? asked : Stream::Mode::kDrop;
}

}  // namespace

Stream::Stream(Device device, Mode mode, int threads, Priority priority)
    : device_(device),
      mode_(mode_of(device, mode)),
      beside_(mode != Mode::kInline),
      pool_(device.type != DeviceType::kCuda && device.has_bytes() ? threads : 1) {
  if (device.type == DeviceType::kCuda)
    device_queue_ = device_backend().make_queue(device.index, priority == Priority::kHigh);
  if (mode_ == Mode::kQueue) {
    failure_ = std::make_shared<Failure>();
    failures_ = std::make_shared<const Failures>(1, failure_);
  }
  if (mode_ == Mode::kThread) {
    queue_ = std::make_unique<Queue>();
    try {
      queue_->thread = std::thread([this] { loop(); });
    } catch (const std::system_error& e) {
      throw thread_refused("the thread of a stream", e);
    }
  }
}

Stream::~Stream() {
  if (device_queue_) {
    try {
      synchronize();
    } catch (...) {
      // Whoever waited for that work was told.
    }
  }
  if (!queue_) return;
  {
    std::lock_guard lock(queue_->mutex);
    queue_->stop = true;
  }
  queue_->changed.notify_all();
  queue_->thread.join();
}

void Stream::push(Task task, const std::optional<Span>& span) {
  {
    std::lock_guard lock(queue_->mutex);
    queue_->items.push_back({std::move(task), nullptr, span, trace_owner.rank});
  }
  queue_->changed.notify_one();
}

Event Stream::record() {
  Event event;
  if (mode_ == Mode::kDrop && simulated_time) return Event::at(simulated_s());
  if (mode_ == Mode::kInline || mode_ == Mode::kDrop) return event;
  event.state_ = std::make_shared<Event::State>();
  if (mode_ == Mode::kQueue) {
    event.state_->device = device_queue_->record();
    event.state_->failures = failures_;
    return event;
  }
  {
    std::lock_guard lock(queue_->mutex);
    queue_->items.push_back({Task(), event.state_, std::nullopt, trace_owner.rank});
  }
  queue_->changed.notify_one();
  return event;
}

double Stream::simulated_s() const {
  const double now = simulated_time ? simulated_time->now_s : 0;
  return beside_ ? std::max(now, simulated_s_) : now;
}

void Stream::drop(const TaskCost& cost) {
  if (!simulated_time) return;
  const double seconds = simulated_time->seconds_of(cost);
  if (beside_) {
    simulated_s_ = simulated_s() + seconds;
  } else {
    simulated_time->now_s += seconds;
    simulated_time->busy_s += seconds;
  }
}

void Stream::run_timed(const std::function<void()>& launch, const TaskCost& cost) {
  if (!spans_) spans_ = std::make_unique<QueueSpans>(*device_queue_);
  const auto span = span_of_task(cost);
  if (span) spans_->run(launch, *span);
  else launch();
}

void Stream::wait(const Event& event) {
  if (!event.state_) return;
  if (mode_ == Mode::kDrop && beside_ && event.state_->simulated_s) {
    simulated_s_ = std::max(simulated_s_, *event.state_->simulated_s);
    return;
  }
  if (mode_ == Mode::kThread) return push([event](Parallel&) { event.synchronize(); }, std::nullopt);
  if (mode_ != Mode::kQueue || !event.state_->device) {
    event.synchronize();
    return;
  }
  device_queue_->wait(*event.state_->device);
  for (auto& f : *event.state_->failures) {
    if (std::find(failures_->begin(), failures_->end(), f) != failures_->end()) continue;
    auto more = std::make_shared<Failures>(*failures_);  // events hold what was there
    more->push_back(f);
    failures_ = std::move(more);
  }
}

void Stream::fail(std::exception_ptr error) {
  std::lock_guard lock(failure_->mutex);
  if (!failure_->error) failure_->error = std::move(error);
}

bool Stream::synchronize(std::optional<Seconds> deadline) { return record().synchronize(deadline); }

// Waits for what the tasks so far set in motion on a GPU.
std::exception_ptr Stream::device_error() {
  if (!device_queue_) return nullptr;
  try {
    device_queue_->record()->wait();
    return nullptr;
  } catch (...) {
    return queue_->error = std::current_exception();
  }
}

void Stream::loop() {
  flush_denormals();
  for (;;) {
    std::unique_lock lock(queue_->mutex);
    queue_->changed.wait(lock, [&] { return queue_->stop || !queue_->items.empty(); });
    if (queue_->items.empty()) return;
    auto [task, event, span, rank] = std::move(queue_->items.front());
    queue_->items.pop_front();
    lock.unlock();
    trace_owner.rank = rank;
    if (event) {
      event->finish(queue_->error ? queue_->error : device_error());
    } else if (!queue_->error) {
      try {
        const TraceSpan traced(span);
        task(device_queue_ ? static_cast<Parallel&>(*device_queue_) : pool_);
      } catch (...) {
        queue_->error = std::current_exception();
      }
    }
    task = nullptr;  // what it held is freed on this stream, in order
  }
}

}  // namespace lockstep
