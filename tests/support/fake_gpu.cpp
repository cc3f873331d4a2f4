#include "tests/support/fake_gpu.h"

#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <vector>

#include "core/device/context.h"
#include "core/device/stream.h"
#include "core/kernels/kernels.h"

namespace lockstep::testing {
namespace {

std::atomic<int64_t> plain_copies = 0;
std::atomic<bool> broken = false;
void require_whole() {
  require(!broken, ExitCode::kDevice, "CUDA: an illegal memory access was encountered (planted)");
}

constexpr int64_t kSpan = int64_t(1) << 36;  // of addresses, of all devices
constexpr int64_t kPage = int64_t(2) << 20;

constexpr int kReserved = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;

char* reserve(int protection) {
  void* p = mmap(nullptr, static_cast<size_t>(kSpan), protection, kReserved, -1, 0);
  check(p != MAP_FAILED, "the fake GPU's addresses cannot be reserved");
  return static_cast<char*>(p);
}

// A file in memory, of kPage bytes that are NaN in every type.
int page_of_nan() {
  const int file = memfd_create("nan", MFD_CLOEXEC);
  const std::vector<char> page(kPage, '\xFF');
  check(file >= 0 && write(file, page.data(), page.size()) == kPage, "the fake GPU's memory cannot be mapped");
  return file;
}

class FakeGpu;
FakeGpu& gpu();

// What is recorded, in the order in which the host said it: an order in which it may run, whatever the queue.
struct FakeGraph final : public DeviceGraph {
  std::vector<std::function<void(Parallel&)>> work;
  std::atomic<bool> ended = false;  // whoever watches events looks, too
};
thread_local std::shared_ptr<FakeGraph> recording;

class FakeEvent final : public DeviceEvent {
 public:
  FakeEvent(Event event, std::shared_ptr<FakeGraph> graph) : event(std::move(event)), graph(std::move(graph)) {}
  bool done() override { return graph ? graph->ended.load() : event.done() && event.synchronize(); }
  void wait() override {
    if (graph) check(graph->ended.load(), "the host waits for work that is being recorded");
    else event.synchronize();
  }
  const Event event;
  const std::shared_ptr<FakeGraph> graph;
};

class FakeQueue final : public DeviceQueue {
 public:
  const KernelTable& kernels() const override;
  void copy(void* to, const void* from, int64_t bytes) override;
  std::shared_ptr<DeviceEvent> record() override {
    return std::make_shared<FakeEvent>(recording ? Event() : thread.record(), recording);
  }
  void wait(DeviceEvent& e) override {
    const auto& event = static_cast<FakeEvent&>(e);
    check(!recording || event.graph || event.event.done(), "recorded work waits for work that is not");
    if (!event.graph) thread.wait(event.event);
  }
  void* native() override { return this; }
  void begin_recording() override { recording = std::make_shared<FakeGraph>(); }
  std::shared_ptr<DeviceGraph> end_recording() override {
    recording->ended = true;
    return std::exchange(recording, nullptr);
  }
  void launch(DeviceGraph& graph) override {
    thread.enqueue([work = static_cast<FakeGraph&>(graph).work](Parallel& cpu) {
      for (auto& w : work) w(cpu);
    });
  }
  struct Time final : DeviceTime {
    std::atomic<int64_t> ns{0};
    bool done() override { return ns.load() != 0; }
    void wait() override {
      while (!done()) std::this_thread::yield();
    }
    double seconds_since(const DeviceTime& earlier) override {
      return 1e-9 * static_cast<double>(ns.load() - static_cast<const Time&>(earlier).ns.load());
    }
  };
  std::shared_ptr<DeviceTime> note_time() override {
    if (recording) return nullptr;
    auto time = std::make_shared<Time>();
    thread.enqueue([time](Parallel&) { time->ns = trace_now_ns(); });
    return time;
  }
  double seconds_of(const std::function<void()>& work) override {
    thread.synchronize();
    const auto begin = std::chrono::steady_clock::now();
    work();
    thread.synchronize();
    return Seconds(std::chrono::steady_clock::now() - begin).count();
  }
  void add(std::function<void(Parallel&)> work) {
    require_whole();
    if (recording) recording->work.push_back(std::move(work));
    else thread.enqueue(std::move(work));
  }

 private:
  Stream thread{Device{DeviceType::kAsyncCpu}, Stream::Mode::kThread};
};

class FakeGpu final : public DeviceBackend {
 public:
  std::string name() const override { return "fake"; }
  std::string versions() const override { return "fake 1"; }
  bool tries(const std::string& word) const override { return word == limits.tries; }
  std::string driver() const override { return "no driver"; }
  std::string choices() const override {
    const char* fault = std::getenv("LOCKSTEP_TEST_GPU_FAULT");
    return fault && std::string(fault) == "refused"
               ? "attention of 1 x 2 x 3 x 4, bf16: kernels of our own, as cuDNN has none: no engine\n"
               : "";
  }
  std::string doubt_of_masks(DeviceQueue&, const MaskedAttention&) override {
    return limits.doubt ? limits.doubt() : "";
  }
  int count() const override { return limits.devices; }
  DeviceProperties properties(int index) const override {
    return {"Fake GPU", "cpu", str("0000:0", index, ":00.0"), str("GPU-", index), 1, limits.memory_bytes};
  }
  int64_t free_memory(int index) const override {
    std::lock_guard lock(mutex_);
    auto it = used_.find(index);
    return limits.memory_bytes - (it == used_.end() ? 0 : it->second);
  }

  void* allocate(int index, int64_t bytes) override {
    require_whole();
    std::lock_guard lock(mutex_);
    if (used_[index] + bytes > limits.memory_bytes || next_ + bytes > kSpan) return nullptr;
    used_[index] += bytes;
    char* p = hidden_ + next_;
    segments_[p] = bytes;
    // NaN, so that a read of what nobody wrote shows. Memory is taken only where something is written; all of kSpan are
    // 32,768 mappings, half of what Linux allows a process.
    for (const int64_t end = next_ + bytes; next_ < end; next_ += kPage)  // an address never means other memory
      map(seen_ + next_, kPage, MAP_PRIVATE, nan_);
    return p;
  }
  void release(int index, void* data) noexcept override {
    std::lock_guard lock(mutex_);
    const int64_t bytes = segments_[static_cast<char*>(data)];
    map(seen_ + (static_cast<char*>(data) - hidden_), (bytes + kPage - 1) / kPage * kPage, kReserved, -1);
    segments_.erase(static_cast<char*>(data));
    used_[index] -= bytes;
  }
  void* allocate_pinned(int, int64_t bytes) override {
    if (limits.pinning) limits.pinning();
    void* p = std::aligned_alloc(4096, static_cast<size_t>((bytes + 4095) / 4096 * 4096));
    if (!p) return nullptr;
    std::lock_guard lock(mutex_);
    pinned_[static_cast<char*>(p)] = bytes;
    return p;
  }
  void release_pinned(int, void* data) noexcept override {
    std::lock_guard lock(mutex_);
    pinned_.erase(static_cast<char*>(data));
    std::free(data);
  }
  bool pin(int, void* data, int64_t bytes) override {
    if (!limits.pins) return false;
    std::lock_guard lock(mutex_);
    pinned_[static_cast<char*>(data)] = bytes;
    return true;
  }
  void unpin(int, void* data) noexcept override {
    std::lock_guard lock(mutex_);
    pinned_.erase(static_cast<char*>(data));
  }
  std::shared_ptr<DeviceQueue> make_queue(int index, bool) override {
    require(index >= 0 && index < limits.devices, ExitCode::kDevice, "there is no GPU ", index, ": ", limits.devices,
            " are there");
    return std::make_shared<FakeQueue>();
  }

  bool is_hidden(const void* p) const { return p >= hidden_ && p < hidden_ + kSpan; }
  bool is_pinned(const void* p) const {
    std::lock_guard lock(mutex_);
    auto it = pinned_.upper_bound(const_cast<char*>(static_cast<const char*>(p)));
    if (it == pinned_.begin()) return false;
    --it;
    return static_cast<const char*>(p) < it->first + it->second;
  }
  void* seen(const void* p) const {
    return is_hidden(p) ? seen_ + (static_cast<const char*>(p) - hidden_) : const_cast<void*>(p);
  }
  // As a kernel may use it.
  template <class T>
  void reach(T*& p) const {
    if (!p) return;
    check(is_hidden(p) || is_pinned(p), "a kernel was given plain host memory, which a GPU does not reach");
    p = static_cast<T*>(seen(p));
  }

  FakeGpuLimits limits;

 private:
  static void map(char* at, int64_t bytes, int flags, int file) {
    if (bytes == 0) return;
    void* p = mmap(at, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE, flags | MAP_FIXED, file, 0);
    check(p == at, "the fake GPU's memory cannot be mapped");
  }

  char *hidden_ = reserve(PROT_NONE), *seen_ = reserve(PROT_READ | PROT_WRITE);
  const int nan_ = page_of_nan();
  mutable std::mutex mutex_;
  int64_t next_ = 0;
  std::map<int, int64_t> used_;
  std::map<char*, int64_t> segments_, pinned_;
};

FakeGpu& gpu() {
  static FakeGpu* instance = new FakeGpu;
  return *instance;
}

void FakeQueue::copy(void* to, const void* from, int64_t bytes) {
  const bool plain = !(gpu().is_hidden(to) || gpu().is_pinned(to)) || !(gpu().is_hidden(from) || gpu().is_pinned(from));
  check(!plain || !recording, "a copy of plain host memory in recorded work");
  add([to = gpu().seen(to), from = gpu().seen(from), bytes](Parallel&) {
    memcpy(to, from, static_cast<size_t>(bytes));
  });
  if (!plain) return;
  ++plain_copies;
  thread.synchronize();
}

// --- Kernels: the CPU's, on the bytes behind the addresses

void reach(PointwiseArgs& a) {
  for (int j = 0; j < a.ins; ++j) gpu().reach(a.in[j].data);
  for (int j = 0; j < a.outs; ++j) gpu().reach(a.out[j].data);
  gpu().reach(a.control);
}
void reach(RowArgs& a) {
  for (RowOperand& o : a.in) gpu().reach(o.data);
  for (RowOperand& o : a.out) gpu().reach(o.data);
}
void reach(ColumnArgs& a) {
  gpu().reach(a.in);
  gpu().reach(a.out);
}
void reach(NormColumnsArgs& a) {
  for (const void** p : {&a.g, &a.x, &a.mean, &a.rstd}) gpu().reach(*p);
  for (void** p : {&a.dweight, &a.dbias}) gpu().reach(*p);
}
void reach(ChannelSumsArgs& a) {
  for (const void** p : {&a.x, &a.g, &a.mean, &a.rstd, &a.scale, &a.shift}) gpu().reach(*p);
  for (void** p : {&a.out0, &a.out1}) gpu().reach(*p);
}
void reach(FoldArgs& a) {
  for (const float** p : {&a.rows, &a.verdict}) gpu().reach(*p);
  gpu().reach(a.value);
  gpu().reach(a.order);
}
void reach(GatherArgs& a) {
  gpu().reach(a.table);
  gpu().reach(a.index);
  gpu().reach(a.rows_data);
}
void reach(GemmArgs& a) {
  for (Matrix* m : {&a.a, &a.b, &a.c}) gpu().reach(m->data);
  for (void** p : {&a.aux, &a.bias_gradient}) gpu().reach(*p);
  gpu().reach(a.bias);
}
void reach(ConvArgs& a) {
  for (void** p : {&a.x, &a.weight, &a.y}) gpu().reach(*p);
  gpu().reach(a.bias);
}
void reach(PoolArgs& a) {
  for (void** p : {&a.x, &a.y}) gpu().reach(*p);
  gpu().reach(a.index);
}
void reach(ResampleArgs& a) {
  gpu().reach(a.x);
  gpu().reach(a.y);
}
void reach(AttentionArgs& a) {
  gpu().reach(a.lengths);
  gpu().reach(a.starts);
  gpu().reach(a.documents);
  gpu().reach(a.samples);
  for (HeadRows* rows : {&a.q, &a.k, &a.v, &a.dq, &a.dk, &a.dv}) gpu().reach(rows->data);
  for (void** p : {&a.y, &a.dy, &a.lse}) gpu().reach(*p);
}
void reach(RecurrentArgs& a) {
  for (const void** p : {&a.weight, &a.zero}) gpu().reach(*p);
  for (void** p : {&a.gates, &a.of_h, &a.c, &a.h, &a.dh, &a.dgates, &a.dof_h, &a.dgates_low, &a.dof_h_low, &a.dstate})
    gpu().reach(*p);
}
void reach(RotaryArgs& a) {
  gpu().reach(a.starts);
  gpu().reach(a.x);
  gpu().reach(a.y);
}
void reach(InitialArgs& a) { gpu().reach(a.out); }
void reach(TreeSumsArgs& a) {
  gpu().reach(a.values);
  gpu().reach(a.ranges);
  gpu().reach(a.out);
}
void reach(BlockCodesArgs& a) {
  for (float** p : {&a.values, &a.scales}) gpu().reach(*p);
  gpu().reach(a.codes);
}
void reach(WeightCodesArgs& a) {
  gpu().reach(a.codes);
  gpu().reach(a.values);
}
void reach(StoreArgs& a) { gpu().reach(a.out); }
void reach(StepOutcomeArgs& a) {
  gpu().reach(a.values);
  for (const int32_t** p : {&a.losses, &a.requests, &a.first, &a.nodes}) gpu().reach(*p);
  gpu().reach(a.out);
  gpu().reach(a.verdict);
}
void reach(UpdateControlArgs& a) {
  for (const float** p : {&a.numbers, &a.verdict}) gpu().reach(*p);
  gpu().reach(a.control);
}
void reach(IndexCheckArgs& a) { gpu().reach(a.index); }

// Any kernel of a GPU may take scratch memory.
FakeQueue& queue_of(Parallel& p) {
  auto& queue = static_cast<FakeQueue&>(p);
  check_no_other_queue(queue);
  return queue;
}
// An argument as the queue keeps it, with addresses that a kernel may use. Text is the name of an operation.
template <class T>
T reached(const T& given) {
  T here = given;
  if constexpr (std::is_pointer_v<T> && !std::is_same_v<T, const char*>) gpu().reach(here);
  else if constexpr (std::is_class_v<T>) reach(here);
  return here;
}
std::vector<PointwiseArgs> reached(std::span<const PointwiseArgs> parts) {
  std::vector<PointwiseArgs> here(parts.begin(), parts.end());
  for (PointwiseArgs& a : here) reach(a);
  return here;
}

template <auto Kernel>
struct Queued;
template <class... Args, void (*KernelTable::*Kernel)(Parallel&, Args...)>
struct Queued<Kernel> {
  static inline std::atomic<bool> has_run = false;
  static void run(Parallel& p, Args... args) {
    has_run = true;
    queue_of(p).add([... here = reached(args)](Parallel& cpu) { (kernels().*Kernel)(cpu, here...); });
  }
};

const KernelTable& table() {
#define LOCKSTEP_MEMBER(name, ...) .name = Queued<&KernelTable::name>::run,
  static const KernelTable instance = {.isa = kernels().isa, LOCKSTEP_KERNELS(LOCKSTEP_MEMBER)};  // the CPU's bits
#undef LOCKSTEP_MEMBER
  return instance;
}

const KernelTable& FakeQueue::kernels() const { return table(); }

}  // namespace

int64_t fake_gpu_plain_copies() { return plain_copies; }

std::vector<std::string> fake_gpu_kernels_not_run() {
  std::vector<std::string> out;
#define LOCKSTEP_NOT_RUN(name, ...) \
  if (!Queued<&KernelTable::name>::has_run) out.emplace_back(#name);
  LOCKSTEP_KERNELS(LOCKSTEP_NOT_RUN)
#undef LOCKSTEP_NOT_RUN
  return out;
}

void fake_gpu_break() { broken = true; }

Device fake_gpu(int index, const FakeGpuLimits& limits) {
  gpu().limits = limits;
  set_device_backend(&gpu());
  return {DeviceType::kCuda, index};
}
void* fake_gpu_bytes(const void* p) { return gpu().seen(p); }
void fake_gpu_enqueue(DeviceQueue& queue, std::function<void()> work) {
  static_cast<FakeQueue&>(queue).add([work = std::move(work)](Parallel&) { work(); });
}
void fake_gpu_enqueue(void* native, std::function<void()> work) {
  fake_gpu_enqueue(*static_cast<FakeQueue*>(native), std::move(work));
}

}  // namespace lockstep::testing
