// DeviceBackend: an accelerator's library: its devices, memory, queues, events, copies and kernels. The only way to a
// GPU: CUDA's lies in a shared object of its own (core/device/cuda), opened when a GPU is first asked for; tests bring
// one that runs on the CPU (tests/support/fake_gpu). One per process, never closed.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/base/error.h"
#include "core/device/device.h"
#include "core/device/memory_use.h"
#include "core/kernels/parallel.h"

namespace lockstep {

struct KernelTable;

struct DeviceProperties {
  std::string name;          // "NVIDIA H200"
  std::string architecture;  // "sm_90"
  std::string bus;           // PCI address: one card has one, whatever the order in which processes see cards
  int processors = 0;
  int64_t memory_bytes = 0;
};

// A point in a queue's work. Errors of the work before it (a kernel's fault, an index outside its table) are thrown
// here.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual bool done() = 0;
  virtual void wait() = 0;  // blocks the host
};

// Work that was recorded, to be set in motion at once and again.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
};

// Work in order on one device. Kernels of kernels() take it where a CPU's take threads: they are set in motion and run
// later. Used by one thread at a time; threads may follow each other.
class DeviceQueue : public Parallel {
 public:
  const KernelTable* device_kernels() const final { return &kernels(); }
  // What runs on host threads has no place here.
  void run(int64_t, int64_t, Body) final { check(false, "a loop of the host in an accelerator's queue"); }
  int threads() const final { return 1; }
  void* scratch(int, int64_t) final {
    check(false, "host scratch in an accelerator's queue");
    return nullptr;
  }

  virtual const KernelTable& kernels() const = 0;
  // Between any two of device memory, pinned memory, and plain host memory; the host waits where one side is plain.
  virtual void copy(void* to, const void* from, int64_t bytes) = 0;
  virtual std::shared_ptr<DeviceEvent> record() = 0;
  virtual void wait(DeviceEvent& event) = 0;  // later work runs after it; of this backend's queues
  virtual void* native() = 0;                 // cudaStream_t
  // From here on work of this queue is recorded, not run, and so is that of queues that wait for its events, until it
  // has waited for theirs and the recording ends. Events of recorded work are done once it has ended.
  virtual void begin_recording() = 0;
  virtual std::shared_ptr<DeviceGraph> end_recording() = 0;
  virtual void launch(DeviceGraph& graph) = 0;
  // A stretch of the host's work by name, on the timeline of a profiler. Of the calling thread; they nest.
  virtual void begin_range(const char*) {}
  virtual void end_range() {}
};

class DeviceBackend {
 public:
  virtual ~DeviceBackend() = default;
  virtual std::string name() const = 0;      // "cuda"
  virtual std::string versions() const = 0;  // of runtime and libraries, on which bits depend
  virtual std::string driver() const = 0;    // its version, in words
  // Libraries may choose by timing, split sums, and give other bits from run to run: for `reduce: fast`. Off at start;
  // for shapes that are met from now on.
  virtual void allow_fast(bool on) = 0;
  virtual std::string choices() const = 0;  // what libraries chose so far: a line a shape
  virtual int count() const = 0;            // devices that this process sees
  virtual DeviceProperties properties(int index) const = 0;
  virtual int64_t free_memory(int index) const = 0;  // now, whoever holds the rest

  // Null where there is no more.
  virtual void* allocate(int index, int64_t bytes) = 0;
  virtual void release(int index, void* data) noexcept = 0;  // waits for the device
  virtual void* allocate_pinned(int index, int64_t bytes) = 0;
  virtual void release_pinned(int index, void* data) noexcept = 0;

  virtual std::shared_ptr<DeviceQueue> make_queue(int index, bool high_priority) = 0;
};

// The backend in use. Where none is: throws ExitCode::kDevice, saying what is missing (the shared object, a driver, a
// GPU that this process may see) and what to do.
DeviceBackend& device_backend();
// Null, and `why` in words, instead.
DeviceBackend* find_device_backend(std::string* why = nullptr);
// Can the driver's library be opened? Without it nothing of a backend is: that costs neither time nor memory.
bool has_gpu_driver();
// For tests, before anything asks for one.
void set_device_backend(DeviceBackend* backend);

// Where a backend's queues have their kernels' scratch memory from: the allocator (core/device/allocator.h), which
// counts it, makes room for it, and says what holds the memory where there is none.
struct ScratchSource {
  void* (*take)(int64_t bytes, const DeviceQueue& queue, const Device& device);
  void (*give_back)(void* data, const Device& device) noexcept;
};

// What the CUDA shared object exports as lockstep_cuda_backend; throws Error where driver or device do not serve.
using MakeDeviceBackend = DeviceBackend*(const ScratchSource&);

}  // namespace lockstep
