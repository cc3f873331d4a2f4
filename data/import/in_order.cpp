#include "data/import/in_order.h"

#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>

#include "core/base/caught.h"

namespace lockstep {
namespace {

class OrderedWork {
 public:
  OrderedWork(int threads, size_t slots, const std::function<int64_t(size_t)>& next,
              const std::function<void(size_t, int)>& work)
      : next_(next), work_(work), most_bytes_(threads * kBytesInFlight), slots_(slots) {
    try {
      for (int i = 0; i < threads; ++i) threads_.emplace_back([this, i] { run(i); });
    } catch (const std::system_error& e) {
      const size_t started = threads_.size();
      stop();
      throw thread_refused(str("import thread ", started + 1, " of ", threads), e);
    }
  }
  ~OrderedWork() { stop(); }

  void use_all(const std::function<void(size_t)>& use) {
    std::unique_lock lock(mutex_);
    for (;; ++used_) {
      changed_.wait(lock, [&] { return slot(used_).ready || (ended_ && used_ == read_); });
      Slot& now = slot(used_);
      if (!now.ready) return;
      if (now.failure) std::rethrow_exception(now.failure);
      lock.unlock();
      use(used_ % slots_.size());
      lock.lock();
      bytes_ -= now.bytes;
      now = Slot();
      changed_.notify_all();
    }
  }

 private:
  struct Slot {
    bool ready = false;
    int64_t bytes = 0;
    std::exception_ptr failure;
  };
  Slot& slot(size_t item) { return slots_[item % slots_.size()]; }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    for (std::thread& t : threads_) t.join();
    threads_.clear();
  }

  void run(int thread) {
    for (size_t item; read(item);) {
      std::exception_ptr failure;
      try {
        work_(item % slots_.size(), thread);
      } catch (...) {
        failure = std::current_exception();
      }
      std::lock_guard lock(mutex_);
      slot(item).failure = failure;
      slot(item).ready = true;
      changed_.notify_all();
    }
  }

  // The next item; false where there is none.
  bool read(size_t& item) {
    std::lock_guard one_at_a_time(reading_);
    {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return stop_ || ended_ || (read_ - used_ < slots_.size() && bytes_ < most_bytes_); });
      if (stop_ || ended_) return false;
      item = read_;
    }
    int64_t bytes = 0;
    std::exception_ptr failure;
    try {
      bytes = next_(item % slots_.size());
    } catch (...) {
      failure = std::current_exception();
    }
    std::lock_guard lock(mutex_);
    ended_ = failure || bytes == 0;
    if (failure) slot(item) = {true, 0, failure};
    else if (!ended_) slot(item).bytes = bytes;
    read_ += failure || !ended_;
    bytes_ += bytes;
    changed_.notify_all();
    return !ended_;
  }

  const std::function<int64_t(size_t)>& next_;
  const std::function<void(size_t, int)>& work_;
  const int64_t most_bytes_;
  std::mutex reading_, mutex_;
  std::condition_variable changed_;
  std::vector<Slot> slots_;
  size_t read_ = 0, used_ = 0;  // items
  int64_t bytes_ = 0;           // of those between
  bool ended_ = false, stop_ = false;
  std::vector<std::thread> threads_;  // declared last, since they use all other members
};

}  // namespace

void run_in_order(int threads, size_t slots, const std::function<int64_t(size_t)>& next,
                  const std::function<void(size_t, int)>& work, const std::function<void(size_t)>& use) {
  if (threads > 1) return OrderedWork(threads, slots, next, work).use_all(use);
  while (next(0) > 0) {
    work(0, 0);
    use(0);
  }
}

}  // namespace lockstep
