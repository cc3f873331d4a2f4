#include <pthread.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "tests/support/cuda_stand_in/cuda_runtime.h"
#include "tests/support/cuda_stand_in/races.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

// A kernel's `extern __shared__` array.
namespace lockstep::inline LOCKSTEP_ISA {
constexpr size_t kNearSize = cuda_stand_in::kMostShared / sizeof(uint4);
extern thread_local uint4 near_memory[];
thread_local uint4 near_memory[kNearSize];
}  // namespace lockstep::inline LOCKSTEP_ISA

namespace cuda_stand_in {
namespace {

// A stack to run on: the calling thread's, or one of its own. AddressSanitizer is told of each change.
class Fiber {
 public:
  Fiber() {
    pthread_attr_t attributes;
    pthread_getattr_np(pthread_self(), &attributes);
    pthread_attr_getstack(&attributes, &bottom_, &size_);
    pthread_attr_destroy(&attributes);
  }
  explicit Fiber(void (*body)()) : own_(true), begun_(false), size_(256 << 10) {
    void* memory =
        mmap(nullptr, size_ + kGuard, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory, kGuard, PROT_NONE) != 0) std::abort();
    bottom_ = static_cast<char*>(memory) + kGuard;
    getcontext(&context_);
    context_.uc_stack.ss_sp = bottom_;
    context_.uc_stack.ss_size = size_;
    makecontext(&context_, body, 0);
  }
  ~Fiber() {
    if (!own_) return;
    munmap(static_cast<char*>(bottom_) - kGuard, size_ + kGuard);
  }
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // By jumps, which unlike swapcontext() ask nothing of the kernel.
  [[gnu::noinline]] static void change(Fiber& from, Fiber& to) {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_start_switch_fiber(&from.fake_, to.bottom_, to.size_);
#endif
    if (__builtin_setjmp(from.place_) == 0) {
      if (to.begun_) __builtin_longjmp(to.place_, 1);
      to.begun_ = true;
      setcontext(&to.context_);
    }
    from.arrive();
  }
  const void* bottom() const { return bottom_; }
  size_t size() const { return size_; }
  // Before anything else on a stack that was changed to.
  void arrive() {
#if defined(__SANITIZE_ADDRESS__)
    __sanitizer_finish_switch_fiber(fake_, nullptr, nullptr);
#endif
  }

 private:
  static constexpr size_t kGuard = 4096;
  bool own_ = false, begun_ = true;
  void* bottom_ = nullptr;
  size_t size_ = 0;
  ucontext_t context_;  // of the beginning
  void* place_[5];      // where it was left
  [[maybe_unused]] void* fake_ = nullptr;
};

// A thread of the block. It keeps the fiber on which it waits; one that never waits leaves its fiber to the next.
struct Thread {
  Fiber* fiber = nullptr;
  int meetings = 0;  // of its warp
};

struct WarpMeeting {
  int number = -1;
  Call call = Call::kSyncWarp;
  unsigned expected = 0;
  Meeting meeting;
  std::vector<unsigned> waiting;
};

struct Warp {
  unsigned running = 0;     // lanes that have not ended
  WarpMeeting meetings[2];  // in turn: a lane may come to the next before others have read this one
};

struct Block {
  const std::function<void()>* body = nullptr;
  unsigned size = 0, started = 0, ended = 0;
  std::vector<Thread> threads;
  std::vector<Warp> warps;
  std::vector<unsigned> ready;    // threads that may go on
  std::vector<unsigned> barrier;  // threads that wait for the block
};

std::mutex turn;
Block block;
std::string failed, last_failure;
int64_t launched = 0;
std::map<const void*, int64_t> asked_for;  // shared memory, by kernel
Fiber* scheduler = nullptr;
Fiber* current = nullptr;
std::vector<std::unique_ptr<Fiber>> all_fibers;
std::vector<Fiber*> free_fibers;

unsigned self() { return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z); }

void become(unsigned thread) {
  threadIdx = {thread % blockDim.x, thread / blockDim.x % blockDim.y, thread / (blockDim.x * blockDim.y)};
  races::begin_thread(thread, current->bottom(), current->size());
}

// A block's threads begin from the first to the last, or with LOCKSTEP_STAND_IN_ORDER=last_first the other way round.
const bool last_first = [] {
  const char* given = std::getenv("LOCKSTEP_STAND_IN_ORDER");
  return given && std::strcmp(given, "last_first") == 0;
}();

void leave() {
  Fiber* const mine = current;
  current = scheduler;
  Fiber::change(*mine, *scheduler);
}
void enter(Fiber* fiber) {
  current = fiber;
  Fiber::change(*scheduler, *fiber);
}

// Until others have set this thread ready.
void wait() {
  const unsigned me = self();
  block.threads[me].fiber = current;
  leave();
  become(me);
}

bool is_complete(const Warp& warp, const WarpMeeting& m) {
  return m.number >= 0 && (m.meeting.mask & warp.running) == (m.expected & warp.running);
}

void release(std::vector<unsigned>& waiting) {
  block.ready.insert(block.ready.end(), waiting.begin(), waiting.end());
  waiting.clear();
}
void complete(unsigned warp_number, WarpMeeting& m) {
  races::meet_warp(warp_number, m.meeting.mask & block.warps[warp_number].running);
  release(m.waiting);
}

void end_thread() {
  const unsigned me = self();
  ++block.ended;
  Warp& warp = block.warps[me / 32];
  warp.running &= ~(1u << me % 32);
  for (WarpMeeting& m : warp.meetings)
    if (!m.waiting.empty() && is_complete(warp, m)) complete(me / 32, m);
}

// Threads that have not begun, one after another; and whatever comes after a launch.
void run_threads() {
  current->arrive();
  for (;;) {
    while (block.started < block.size) {
      const unsigned next = block.started++;
      become(last_first ? block.size - 1 - next : next);
      (*block.body)();
      end_thread();
    }
    free_fibers.push_back(current);
    leave();
  }
}

Fiber* take_fiber() {
  if (free_fibers.empty()) {
    all_fibers.push_back(std::make_unique<Fiber>(run_threads));
    return all_fibers.back().get();
  }
  Fiber* fiber = free_fibers.back();
  free_fibers.pop_back();
  return fiber;
}

void run_block() {
  block.started = block.ended = 0;
  block.threads.assign(block.size, {});
  block.warps.assign((block.size + 31) / 32, {});
  for (unsigned t = 0; t < block.size; ++t) block.warps[t / 32].running |= 1u << t % 32;
  block.ready.clear();
  block.barrier.clear();
  races::begin_block(block.size);
  while (failed.empty() && block.ended < block.size) {
    if (block.started < block.size) {
      enter(take_fiber());
    } else if (!block.ready.empty()) {
      const std::vector<unsigned> ready = std::move(block.ready);
      block.ready.clear();
      for (unsigned t : ready)
        if (failed.empty()) enter(block.threads[t].fiber);
    } else {
      failed = std::to_string(block.barrier.size()) + " of " + std::to_string(block.size) +
               " threads wait at a barrier, the others wait elsewhere or have ended";
    }
  }
}

}  // namespace

void fail(const char* what, int lane) {
  failed = what + (lane < 0 ? std::string() : std::to_string(lane)) + " (block " + std::to_string(blockIdx.x) +
           ", thread " + std::to_string(self()) + ")";
  leave();
  std::abort();  // nobody comes back to a launch that failed
}

const Meeting& meet(Call call, unsigned mask, uint64_t value) {
  const unsigned me = self();
  if (!(mask >> me % 32 & 1)) fail("a thread is not in the mask it names");
  Warp& warp = block.warps[me / 32];
  const int number = block.threads[me].meetings++;
  WarpMeeting& m = warp.meetings[number % 2];
  if (m.number != number) {
    m.number = number;
    m.call = call;
    m.expected = mask;
    m.meeting.mask = 0;
  }
  if (m.call != call || m.expected != mask) fail("threads of a warp meet in different calls, or name different masks");
  m.meeting.mask |= 1u << me % 32;
  m.meeting.value[me % 32] = value;
  if (is_complete(warp, m)) {
    complete(me / 32, m);
  } else {
    m.waiting.push_back(me);
    wait();
  }
  return m.meeting;
}

void meet_block() {
  block.barrier.push_back(self());
  if (block.barrier.size() == block.size) {
    block.barrier.pop_back();
    races::meet_block();
    release(block.barrier);
  } else {
    wait();
  }
}

const std::string& failure() { return last_failure; }

int64_t launches() {
  std::lock_guard lock(turn);
  return launched;
}

int64_t shared_bytes_of(const void* kernel) {
  std::lock_guard lock(turn);
  const auto asked = asked_for.find(kernel);
  return asked == asked_for.end() ? 48 << 10 : asked->second;
}

cudaError_t launch(dim3 grid, dim3 threads, size_t shared_bytes, const std::function<void()>& body) {
  std::lock_guard lock(turn);
  const unsigned size = threads.x * threads.y * threads.z;
  if (size == 0 || size > 1024 || grid.x == 0 || grid.x > 0x7FFFFFFFu || shared_bytes > sizeof(lockstep::near_memory))
    return cudaErrorInvalidValue;
  ++launched;
  Fiber here;
  scheduler = current = &here;
  gridDim = grid;
  blockDim = threads;
  failed.clear();
  block.body = &body;
  block.size = size;
  races::begin_launch(lockstep::near_memory, sizeof(lockstep::near_memory));
  std::memset(lockstep::near_memory, 0xFF, sizeof(lockstep::near_memory));
  for (unsigned z = 0; z < grid.z; ++z)
    for (unsigned y = 0; y < grid.y; ++y)
      for (unsigned x = 0; x < grid.x && failed.empty(); ++x) {
        blockIdx = {x, y, z};
        std::memset(lockstep::near_memory, 0xFF, shared_bytes);  // NaN: nothing is there yet
        run_block();
      }
  races::end_launch();
  if (failed.empty()) return cudaSuccess;
  // Stacks that wait in the middle of a kernel are of no use to another.
  free_fibers.clear();
  all_fibers.clear();
  last_failure = failed;
  return cudaErrorLaunchFailure;
}

}  // namespace cuda_stand_in

const char* cudaGetErrorName(cudaError_t error) {
  if (error == cudaErrorLaunchFailure) return cuda_stand_in::last_failure.c_str();
  return error == cudaSuccess ? "cudaSuccess" : "cudaError";
}
const char* cudaGetErrorString(cudaError_t error) { return cudaGetErrorName(error); }

cudaError_t cudaFuncSetAttribute(const void* kernel, cudaFuncAttribute, int bytes) {
  if (bytes > cuda_stand_in::kMostShared) return cudaErrorInvalidValue;
  std::lock_guard lock(cuda_stand_in::turn);
  cuda_stand_in::asked_for[kernel] = bytes;
  return cudaSuccess;
}

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  *memory = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *memory ? cudaSuccess : cudaErrorMemoryAllocation;
}
cudaError_t cudaFree(void* memory) {
  std::free(memory);
  return cudaSuccess;
}
cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t) { return cudaMalloc(memory, bytes); }
cudaError_t cudaFreeAsync(void* memory, cudaStream_t) { return cudaFree(memory); }
