#include "core/device/allocator.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <numeric>
#include <thread>
#include <unordered_map>
#include <vector>

#include "core/base/caught.h"
#include "core/base/error.h"
#include "core/base/partition.h"
#include "core/device/block_pool.h"
#include "core/device/context.h"
#include "core/device/memory_ledger.h"

namespace lockstep {
namespace {

// Sanitizers follow malloc, not our blocks: there every tensor is an allocation of its own.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kCaching = false;
#else
constexpr bool kCaching = true;
#endif

int64_t rounded(int64_t bytes) { return round_up(bytes > 0 ? bytes : 1, Pool::kAlign); }

class HostSource final : public Source {
 public:
  char* take(int64_t bytes) override {
    void* raw = mmap(nullptr, static_cast<size_t>(bytes + Pool::kHugePage), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED) return nullptr;
    const auto address = static_cast<int64_t>(reinterpret_cast<uintptr_t>(raw));
    char* data = static_cast<char*>(raw) + (round_up(address, Pool::kHugePage) - address);
    madvise(data, static_cast<size_t>(bytes), MADV_HUGEPAGE);  // a page fault costs 2 us; a refusal costs only time
    return data;
  }
  std::string rest_text() const override { return str("; ", host_memory_text()); }
};

class GpuSource final : public Source {
 public:
  explicit GpuSource(int index) : backend_(device_backend()), index_(index) {}
  char* take(int64_t bytes) override { return static_cast<char*>(backend_.allocate(index_, bytes)); }
  void give_back(char* data) override { backend_.release(index_, data); }
  std::string rest_text() const override {
    return str("; the GPU has ", backend_.free_memory(index_), " of ", backend_.properties(index_).memory_bytes,
               " bytes free");
  }

 private:
  DeviceBackend& backend_;
  const int index_;
};

class PinnedSource final : public Source {
 public:
  explicit PinnedSource(int index) : backend_(device_backend()), index_(index) {}
  char* take(int64_t bytes) override { return static_cast<char*>(backend_.allocate_pinned(index_, bytes)); }
  void give_back(char* data) override { backend_.release_pinned(index_, data); }

 private:
  DeviceBackend& backend_;
  const int index_;
};

// One memory: what is in use of it, and how it is found.
class Memory {
 public:
  virtual ~Memory() = default;
  virtual void* allocate(int64_t bytes, MemoryUse use) = 0;
  virtual void release(void* data) = 0;
  virtual void* take_from(const std::function<void*()>& library, int64_t bytes, MemoryUse use) = 0;
  virtual void forget(void* data) = 0;
  virtual void trim_now() {}

  AllocatorStats stats() {
    std::lock_guard lock(mutex_);
    return ledger_.stats();
  }
  void reset_peak() {
    std::lock_guard lock(mutex_);
    ledger_.restart_peak();
  }
  template <class Look>
  auto look(const Look& look_at) {
    std::lock_guard lock(mutex_);
    return look_at(ledger_);
  }

 protected:
  using Owner = MemoryLedger::Owner;
  Owner owner_of(MemoryUse use) { return ledger_.owner_of(use, context().memory_for); }

  std::mutex mutex_;
  MemoryLedger ledger_;
};

class Arena : public Memory {
 public:
  Arena(Device device, std::unique_ptr<Source> source) : device_(device), source_(std::move(source)) {}

  void* allocate(int64_t bytes, MemoryUse use) override {
    bytes = rounded(bytes);
    std::unique_lock lock(mutex_);
    const Owner owner = owner_of(use);
    char* data = find(bytes, owner, lock);
    if (!data && !context().recording) {
      give_back_unused(lock);
      data = find(bytes, owner, lock);
    }
    if (!data) out_of_memory(bytes, use);
    ledger_.count_in(bytes, owner);
    return data;
  }

  void release(void* data) override {
    if (!data) return;
    std::lock_guard lock(mutex_);
    auto it = blocks_.find(static_cast<char*>(data));
    ledger_.count_out(it->second.size, it->second.owner);
    free_block(it->first, it->second);
  }

  void* take_from(const std::function<void*()>& library, int64_t bytes, MemoryUse use) override {
    void* data = library();
    std::unique_lock lock(mutex_);
    if (!data && !context().recording) {
      give_back_unused(lock);
      lock.unlock();
      data = library();
      lock.lock();
    }
    if (!data) return nullptr;
    const Owner owner = owner_of(use);
    blocks_[static_cast<char*>(data)] = {bytes, false, owner, 0, nullptr, nullptr, nullptr};
    ++ledger_.stats().system_allocations;
    ledger_.stats().bytes_reserved += bytes;
    ledger_.count_in(bytes, owner);
    return data;
  }

  void forget(void* data) override {
    std::lock_guard lock(mutex_);
    auto it = blocks_.find(static_cast<char*>(data));
    ledger_.stats().bytes_reserved -= it->second.size;
    ledger_.count_out(it->second.size, it->second.owner);
    blocks_.erase(it);
  }

  void trim_now() override {
    std::unique_lock lock(mutex_);
    give_back_unused(lock);
  }

 protected:
  virtual char* find(int64_t bytes, Owner owner, std::unique_lock<std::mutex>& lock) {
    if (!kCaching) return system_block(bytes, owner);
    return pool_.take(bytes, owner, lock);
  }
  virtual void wait_for_held() {}  // until what this thread has freed may be used again
  virtual void trim() {}           // gives segments that nobody uses back to the source
  virtual void free_block(char* data, const Block& block) {
    if (kCaching) return pool_.give(data, block);
    blocks_.erase(data);
    std::free(data);
  }

  const Device device_;
  const std::unique_ptr<Source> source_;
  Blocks blocks_;
  Pool pool_{blocks_, *source_, ledger_.stats()};

 private:
  void give_back_unused(std::unique_lock<std::mutex>& lock) {
    lock.unlock();
    wait_for_held();
    lock.lock();
    trim();
  }

  [[noreturn]] void out_of_memory(int64_t bytes, MemoryUse use) const {
    const bool gpu = device_.type == DeviceType::kCuda;
    const std::string_view whom = context().memory_for;
    const AllocatorStats& stats = ledger_.stats();
    BytesByUse held = stats.by_use;
    held[static_cast<size_t>(use)] += bytes;
    throw OutOfMemory(ExitCode::kDevice,
                      str("out of memory", gpu || device_.type == DeviceType::kPinned ? str(" on ", device_) : "", ": ",
                          bytes, " bytes asked for (", use, whom.empty() ? "" : " of ", whom, "), ", stats.bytes_in_use,
                          " in use (", census_text(stats.by_use), "), by module ", shares_text(ledger_.held()), ", ",
                          stats.bytes_reserved, " reserved", source_->rest_text()),
                      held);
  }

  char* system_block(int64_t bytes, Owner owner) {
    char* data = static_cast<char*>(std::aligned_alloc(static_cast<size_t>(Pool::kAlign), static_cast<size_t>(bytes)));
    if (!data) return nullptr;
    blocks_[data] = {bytes, false, owner, 0, nullptr, nullptr, nullptr};
    ++ledger_.stats().system_allocations;
    return data;
  }
};

// Of a GPU, or pinned for one: blocks that work under way may still use.
class QueuedArena : public Arena {
 public:
  virtual void end_graph(const void* graph) {
    std::lock_guard lock(mutex_);
    for (char* data : of_graphs_[graph]) give(data, blocks_[data]);
    of_graphs_.erase(graph);
  }

 protected:
  using Arena::Arena;

  // Until `now` has passed this place; or, while a graph is recorded, whose launches come again and again, until its
  // end. Where the GPU is broken, for ever: the error is told to those who wait for its work.
  void hold(char* data, Stream& now) {
    if (const void* graph = context().recording) return of_graphs_[graph].push_back(data);
    try {
      held_.push_back({now.record(), data, std::this_thread::get_id()});
    } catch (...) {
    }
  }
  virtual void give(char* data, const Block& block) = 0;
  void take_back() {
    std::erase_if(held_, [&](const Held& held) {
      if (!happened(held.event)) return false;
      give(held.data, blocks_[held.data]);
      return true;
    });
  }
  // Not for what other ranks' threads have freed: their work may wait for this rank.
  void wait_for_held() override {
    std::vector<Event> mine;
    {
      std::lock_guard lock(mutex_);
      for (const Held& held : held_)
        if (held.by == std::this_thread::get_id()) mine.push_back(held.event);
    }
    for (const Event& event : mine) {
      try {
        event.synchronize();
      } catch (...) {
        // Told to those who wait for that work.
      }
    }
  }

 private:
  struct Held {
    Event event;
    char* data;
    std::thread::id by;
  };
  static bool happened(const Event& event) {
    try {
      return event.done();
    } catch (...) {
      return true;
    }
  }

  std::vector<Held> held_;
  std::map<const void*, std::vector<char*>> of_graphs_;
};

class GpuArena final : public QueuedArena {
 public:
  explicit GpuArena(int index) : QueuedArena({DeviceType::kCuda, index}, std::make_unique<GpuSource>(index)) {}

  void end_graph(const void* graph) override {
    QueuedArena::end_graph(graph);
    std::lock_guard lock(mutex_);
    for (auto it = pools_.begin(); it != pools_.end();) {
      if (it->first.graph != graph) {
        ++it;
        continue;
      }
      idle_.push_back(std::move(it->second));
      it = pools_.erase(it);
    }
  }

 private:
  // The current stream; null where the thread has none on this GPU.
  Stream* here() const {
    Stream* now = context().stream;
    return now && now->device() == device_ ? now : nullptr;
  }

  char* find(int64_t bytes, Owner owner, std::unique_lock<std::mutex>& lock) override {
    Stream* now = here();
    Pool& pool = pool_of(now ? now->device_queue() : nullptr);
    if (!pool.fits(bytes)) take_back();  // asking the driver about each event costs more than the rest
    return pool.take(bytes, owner, lock);
  }
  void trim() override {
    take_back();
    for (auto& [key, other] : pools_)
      if (!key.graph) other->trim();
    for (auto& other : idle_) other->trim();
  }

  // A graph that is being recorded shares with nobody: it uses its blocks at every launch.
  Pool& pool_of(const std::shared_ptr<DeviceQueue>& queue) {
    const Key key{queue, queue ? context().recording : nullptr};
    auto it = pools_.find(key);
    if (it != pools_.end()) return *it->second;
    // That of a stream that is no more, where there is one: what it did is done.
    it = std::find_if(pools_.begin(), pools_.end(),
                      [](auto& p) { return p.first.of_a_queue && !p.first.graph && p.first.queue.expired(); });
    if (it != pools_.end()) {
      idle_.push_back(std::move(it->second));
      pools_.erase(it);
    }
    if (idle_.empty()) idle_.push_back(std::make_unique<Pool>(blocks_, *source_, ledger_.stats()));
    auto& pool = pools_[key] = std::move(idle_.back());
    idle_.pop_back();
    return *pool;
  }

  void free_block(char* data, const Block& block) override {
    Stream* now = here();
    if (now && &pool_of(now->device_queue()) != block.pool) hold(data, *now);
    else give(data, block);
  }
  void give(char* data, const Block& block) override { block.pool->give(data, block); }

  // Does not keep the queue: its end frees its scratch memory, and must not come under the lock.
  struct Key {
    Key(const std::shared_ptr<DeviceQueue>& q, const void* recording)
        : queue(q), graph(recording), of_a_queue(q != nullptr) {}
    std::weak_ptr<DeviceQueue> queue;  // told apart also when it is no more
    const void* graph;                 // that records it
    bool of_a_queue;
    bool operator<(const Key& o) const {
      if (queue.owner_before(o.queue)) return true;
      return !o.queue.owner_before(queue) && std::less<>()(graph, o.graph);
    }
  };
  std::map<Key, std::unique_ptr<Pool>> pools_;
  std::vector<std::unique_ptr<Pool>> idle_;  // of streams and graphs that are no more
};

class PinnedArena final : public QueuedArena {
 public:
  explicit PinnedArena(int index) : QueuedArena({DeviceType::kPinned, index}, std::make_unique<PinnedSource>(index)) {}

 private:
  char* find(int64_t bytes, Owner owner, std::unique_lock<std::mutex>& lock) override {
    if (!pool_.fits(bytes)) take_back();
    return pool_.take(bytes, owner, lock);
  }
  void free_block(char* data, const Block& block) override {
    Stream* now = context().stream;
    if (now && now->device_queue()) hold(data, *now);
    else give(data, block);
  }
  void give(char* data, const Block& block) override { pool_.give(data, block); }
};

// A meta device's: sizes without memory.
class Counter final : public Memory {
 public:
  void* allocate(int64_t bytes, MemoryUse use) override {
    bytes = rounded(bytes);
    std::lock_guard lock(mutex_);
    // Not one address of them is ever mapped (it is no canonical one on any 64-bit machine), nor given out twice.
    void* data = reinterpret_cast<void*>(next_);
    next_ += static_cast<uintptr_t>(bytes);
    const Owner owner = owner_of(use);
    blocks_[data] = {bytes, owner};
    ledger_.count_in(bytes, owner);
    return data;
  }
  void release(void* data) override {
    if (!data) return;
    std::lock_guard lock(mutex_);
    auto it = blocks_.find(data);
    ledger_.count_out(it->second.first, it->second.second);
    blocks_.erase(it);
  }
  void* take_from(const std::function<void*()>&, int64_t, MemoryUse) override { return nullptr; }
  void forget(void*) override {}

 private:
  std::unordered_map<void*, std::pair<int64_t, Owner>> blocks_;
  uintptr_t next_ = uintptr_t(1) << 60;
};

// Never destroyed: tensors of other static objects may outlive it.
struct Memories {
  std::mutex mutex;
  Arena host{{}, std::make_unique<HostSource>()};
  std::map<int, std::unique_ptr<Memory>> gpus, pinned;
  std::vector<std::unique_ptr<Memory>> counters;
};
Memories& memories() {
  static Memories* instance = new Memories;
  return *instance;
}

Memory& memory_of(const Device& device) {
  Memories& all = memories();
  if (device.type == DeviceType::kCpu || device.type == DeviceType::kAsyncCpu) return all.host;
  std::lock_guard lock(all.mutex);
  if (device.type == DeviceType::kMeta) {
    check(device.index >= 0 && device.index < static_cast<int>(all.counters.size()), "there is no device ", device);
    return *all.counters[static_cast<size_t>(device.index)];
  }
  const bool gpu = device.type == DeviceType::kCuda;
  auto& made = (gpu ? all.gpus : all.pinned)[device.index];
  if (!made && gpu) made = std::make_unique<GpuArena>(device.index);
  else if (!made) made = std::make_unique<PinnedArena>(device.index);
  return *made;
}

}  // namespace

void* allocate_bytes(int64_t bytes, const Device& device, MemoryUse use) {
  return memory_of(device).allocate(bytes, use);
}
void free_bytes(void* data, const Device& device) noexcept { memory_of(device).release(data); }
void* allocate_scratch(int64_t bytes, const DeviceQueue& queue, const Device& device) {
  check_no_other_queue(queue);
  return allocate_bytes(bytes, device, MemoryUse::kScratch);
}
void* take_from_library(const std::function<void*()>& library, int64_t bytes, const Device& device, MemoryUse use) {
  return memory_of(device).take_from(library, bytes, use);
}
void forget_bytes(void* data, const Device& device) noexcept { memory_of(device).forget(data); }
void trim_memory(const Device& device) { memory_of(device).trim_now(); }
AllocatorStats allocator_stats(const Device& device) { return memory_of(device).stats(); }
void reset_peak_bytes(const Device& device) { memory_of(device).reset_peak(); }
MemoryPeak memory_peak(const Device& device) {
  return memory_of(device).look([](const MemoryLedger& ledger) { return ledger.peak(); });
}
MemoryPeak take_memory_peak(const Device& device) {
  return memory_of(device).look([](MemoryLedger& ledger) { return ledger.take_peak(); });
}
std::vector<MemorySample> take_memory_samples(const Device& device) {
  return memory_of(device).look([](MemoryLedger& ledger) { return ledger.take_samples(); });
}
void sample_memory(const Device& device, bool on) {
  memory_of(device).look([on](MemoryLedger& ledger) { ledger.sample(on); });
}

WithoutMemoryPeak::WithoutMemoryPeak(const Device& device) : device_(device) {
  memory_of(device_).look([](MemoryLedger& ledger) { ledger.pause(1); });
}
WithoutMemoryPeak::~WithoutMemoryPeak() {
  memory_of(device_).look([](MemoryLedger& ledger) { ledger.pause(-1); });
}

void free_graph_memory(const void* graph, const Device& device) {
  for (const Device& d : {device, host_memory_of(device)}) static_cast<QueuedArena&>(memory_of(d)).end_graph(graph);
}

Device new_meta_device() {
  Memories& all = memories();
  std::lock_guard lock(all.mutex);
  all.counters.push_back(std::make_unique<Counter>());
  return {DeviceType::kMeta, static_cast<int>(all.counters.size()) - 1};
}

std::string census_text(const BytesByUse& bytes) {
  std::vector<size_t> order(bytes.size());
  std::iota(order.begin(), order.end(), size_t(0));
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return bytes[a] > bytes[b]; });
  std::string out;
  for (size_t i : order)
    if (bytes[i] > 0) out += str(out.empty() ? "" : ", ", static_cast<MemoryUse>(i), " ", bytes[i]);
  return out;
}

}  // namespace lockstep
