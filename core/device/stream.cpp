#include "core/device/stream.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

namespace lockstep {

struct Event::State {
  std::mutex mutex;
  std::condition_variable changed;
  bool done = false;
  std::exception_ptr error;
  std::shared_ptr<DeviceEvent> device;  // a queue's; the rest is a thread's

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

bool Event::synchronize(std::optional<Seconds> deadline) const {
  if (!state_) return true;
  if (state_->device) return wait_for_device(*state_->device, deadline);
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

bool Event::done() const {
  if (!state_) return true;
  if (state_->device) return state_->device->done();
  std::lock_guard lock(state_->mutex);
  return state_->done;
}

struct Stream::Queue {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::pair<Task, std::shared_ptr<Event::State>>> items;
  bool stop = false;
  std::exception_ptr error;  // only the stream's thread
  std::thread thread;
};

namespace {

Stream::Mode mode_of(const Device& device, Stream::Mode asked) {
  if (device.type == DeviceType::kCuda) return Stream::Mode::kQueue;
  return device.has_bytes() ? asked : Stream::Mode::kDrop;
}

}  // namespace

Stream::Stream(Device device, Mode mode, int threads, Priority priority)
    : device_(device),
      mode_(mode_of(device, mode)),
      pool_(mode_ == Mode::kInline || mode_ == Mode::kThread ? threads : 1) {
  if (mode_ == Mode::kQueue) device_queue_ = device_backend().make_queue(device.index, priority == Priority::kHigh);
  if (mode_ == Mode::kThread) {
    queue_ = std::make_unique<Queue>();
    queue_->thread = std::thread([this] { loop(); });
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

void Stream::push(Task task) {
  {
    std::lock_guard lock(queue_->mutex);
    queue_->items.emplace_back(std::move(task), nullptr);
  }
  queue_->changed.notify_one();
}

Event Stream::record() {
  Event event;
  if (mode_ == Mode::kInline || mode_ == Mode::kDrop) return event;
  event.state_ = std::make_shared<Event::State>();
  if (mode_ == Mode::kQueue) {
    event.state_->device = device_queue_->record();
    return event;
  }
  {
    std::lock_guard lock(queue_->mutex);
    queue_->items.emplace_back(Task(), event.state_);
  }
  queue_->changed.notify_one();
  return event;
}

void Stream::wait(const Event& event) {
  if (!event.state_) return;
  if (mode_ == Mode::kQueue && event.state_->device) device_queue_->wait(*event.state_->device);
  else if (mode_ != Mode::kThread) event.synchronize();
  else push([event](Parallel&) { event.synchronize(); });
}

bool Stream::synchronize(std::optional<Seconds> deadline) { return record().synchronize(deadline); }

void Stream::loop() {
  flush_denormals();
  for (;;) {
    std::unique_lock lock(queue_->mutex);
    queue_->changed.wait(lock, [&] { return queue_->stop || !queue_->items.empty(); });
    if (queue_->items.empty()) return;
    auto [task, event] = std::move(queue_->items.front());
    queue_->items.pop_front();
    lock.unlock();
    if (event) {
      event->finish(queue_->error);
    } else if (!queue_->error) {
      try {
        task(pool_);
      } catch (...) {
        queue_->error = std::current_exception();
      }
    }
    task = nullptr;  // what it held is freed on this stream, in order
  }
}

}  // namespace lockstep
