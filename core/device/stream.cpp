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

  void finish(std::exception_ptr e) {
    {
      std::lock_guard lock(mutex);
      done = true;
      error = std::move(e);
    }
    changed.notify_all();
  }
};

bool Event::synchronize(std::optional<Seconds> deadline) const {
  if (!state_) return true;
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

Stream::Stream(Device device, Mode mode, int threads)
    : device_(device), mode_(device.has_bytes() ? mode : Mode::kDrop), pool_(device.has_bytes() ? threads : 1) {
  if (mode_ == Mode::kThread) {
    queue_ = std::make_unique<Queue>();
    queue_->thread = std::thread([this] { loop(); });
  }
}

Stream::~Stream() {
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
  if (mode_ != Mode::kThread) return event;
  event.state_ = std::make_shared<Event::State>();
  {
    std::lock_guard lock(queue_->mutex);
    queue_->items.emplace_back(Task(), event.state_);
  }
  queue_->changed.notify_one();
  return event;
}

void Stream::wait(const Event& event) {
  if (!event.state_) return;
  if (mode_ != Mode::kThread) event.synchronize();
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
