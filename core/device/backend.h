// DeviceBackend: the interface to an accelerator: devices, memory, queues, events, copies and kernels. All GPU work
// goes through it. The CUDA backend (core/device/cuda) is a shared object that is loaded at the first use of a GPU;
// tests use one that runs on the CPU (tests/support/fake_gpu). One per process, never unloaded.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/base/error.h"
#include "core/device/device.h"
#include "core/device/memory_use.h"
#include "core/kernels/attention/masked_attention.h"
#include "core/kernels/parallel.h"

namespace lockstep {

struct KernelTable;

struct DeviceProperties {
  std::string name;          // "NVIDIA H200"
  std::string architecture;  // "sm_90"
  std::string bus;           // PCI address: one card has one, whatever the order in which processes see cards
  std::string id;            // "GPU-1b2c...": UUID of this card, or of this part of one (MIG); unique across machines
  int processors = 0;
  int64_t memory_bytes = 0;
};

// A point in a queue's work. done() and wait() throw the errors of the work before it (a kernel's fault, an index out
// of range).
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;  // blocks the host
};

// A point in a queue's work at which the device notes its time.
class DeviceTime {
 public:
  virtual ~DeviceTime() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;                                      // blocks the host
  virtual double seconds_since(const DeviceTime& earlier) = 0;  // of the same device; both are done
};

// Recorded work, which DeviceQueue::launch runs as a whole, any number of times.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// A queue of work on one device, which runs in order. The kernels of kernels() take it as their Parallel argument: they
// enqueue work and return. Used by one thread at a time, not always the same one.
class DeviceQueue : public Parallel {
 public:
  const KernelTable* device_kernels() const final { return &kernels(); }
  // Host loops and host scratch memory do not exist on a queue: both throw kInternal.
  void run(int64_t, int64_t, Body) final { check(false, "a host loop was enqueued on an accelerator's queue"); }
  int threads() const final { return 1; }
  void* scratch(int, int64_t) final {
    check(false, "host scratch memory was requested from an accelerator's queue");
    return nullptr;
  }

  virtual const KernelTable& kernels() const = 0;
  // Between device, pinned and pageable host memory, in any direction. Blocks the host if one side is pageable.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual std::shared_ptr<DeviceEvent> record() = 0;
  virtual void wait(DeviceEvent& event) = 0;  // later work runs after `event`, of any queue of this backend
  virtual void* native() = 0;                 // cudaStream_t
  // From here to end_recording(), work of this queue is recorded instead of run. So is work of queues that wait for its
  // events; this queue must wait for theirs before the recording ends. Events of recorded work are done when it ends.
  virtual void begin_recording() = 0;
  virtual std::shared_ptr<DeviceGraph> end_recording() = 0;
  virtual void launch(DeviceGraph& graph) = 0;
  // Seconds that the device takes for what `work` enqueues on this queue, without the host's part: between two events,
  // for which the host waits. Not while the queue's work is being recorded.
  virtual double seconds_of(const std::function<void()>& work) = 0;
  // Null while the queue's work is being recorded.
  virtual std::shared_ptr<DeviceTime> note_time() = 0;
  // A named range of the calling thread's work on a profiler's timeline. Ranges nest.
  virtual void begin_profiler_range(const char*) {}
  virtual void end_profiler_range() {}

  // Whether libraries may choose algorithms by timing and split sums in work that is enqueued from now on, so that bits
  // differ from run to run (`reduce: fast`). Off at first.
  void allow_fast(bool on) { fast_ = on; }
  bool is_fast() const { return fast_; }
  // Whether products and convolutions of fp32 that are enqueued from now on may multiply in TF32, factors with 10 bits
  // after the point (`precision.tf32`). Off at first.
  void allow_tf32(bool on) { tf32_ = on; }
  bool allows_tf32() const { return tf32_; }
  // The kinds of 16-bit attention whose documents and lengths a library may be told of in work that is enqueued from
  // now on: after the proof of DeviceBackend::doubt_of_masks() on every rank. None at first: kernels of our own serve.
  void trust_masks(MaskedAttentions kinds) { trusted_masks_ = std::move(kinds); }
  const MaskedAttentions& trusted_masks() const { return trusted_masks_; }

 private:
  bool fast_ = false, tf32_ = false;
  MaskedAttentions trusted_masks_;
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual std::string name() const = 0;      // "cuda"
  virtual std::string versions() const = 0;  // of runtime and libraries, on which bits depend
  virtual std::string driver() const = 0;    // its version, in words
  // Whether the environment asks for this way of working, which no device has decided yet.
  virtual bool tries(const std::string&) const { return false; }
  virtual std::string choices() const = 0;  // algorithms that libraries chose so far, one line a shape
  virtual int count() const = 0;            // devices that this process sees
  virtual DeviceProperties properties(int index) const = 0;
  virtual int64_t free_memory(int index) const = 0;  // bytes, now, of all processes

  // Null if memory ran out.
  virtual void* allocate(int index, int64_t bytes) = 0;
  virtual void release(int index, void* data) noexcept = 0;  // waits for the device
  virtual void* allocate_pinned(int index, int64_t bytes) = 0;
  virtual void release_pinned(int index, void* data) noexcept = 0;
  // Pins host memory that is there already, in whole pages, so that copies of it do not block the host. False where the
  // system refuses: then they still do. No work may use the memory when it is unpinned.
  virtual bool pin(int index, void* data, int64_t bytes) = 0;
  virtual void unpin(int index, void* data) noexcept = 0;

  virtual std::shared_ptr<DeviceQueue> make_queue(int index, bool high_priority) = 0;

  // Why the library's attention of this kind, of a 16-bit type, cannot be trusted under masks on this queue's device: a
  // small calculation, forward and backward, beside kernels of our own, and repeated. Empty where the values agree and
  // the bits repeat. Blocks the host for part of a second.
  virtual std::string doubt_of_masks(DeviceQueue&, const MaskedAttention&) { return "this device has no such library"; }
};

// The backend in use. Throws ExitCode::kDevice if there is none; the message says what is missing (the shared object, a
// driver, a visible GPU) and what to do.
DeviceBackend& device_backend();
// The same, but returns null and sets `why` instead of throwing.
DeviceBackend* find_device_backend(std::string* why = nullptr);
// Whether the driver's library can be loaded. A cheap test: if not, no backend is loaded.
bool has_gpu_driver();
// For tests; before the first use of a backend.
void set_device_backend(DeviceBackend* backend);

// Where a backend's queues get scratch memory for kernels: the allocator (core/device/allocator.h), so that it is
// counted, and named in out-of-memory messages.
struct ScratchSource {
  void* (*take)(int64_t bytes, const DeviceQueue& queue, const Device& device);
  void (*give_back)(void* data, const Device& device) noexcept;
};

// The CUDA shared object exports a function of this type, lockstep_cuda_backend. Throws Error if the driver or a device
// cannot be used.
using MakeDeviceBackend = DeviceBackend*(const ScratchSource&);

}  // namespace lockstep
