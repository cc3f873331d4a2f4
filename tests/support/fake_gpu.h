// A GPU that the CPU plays: its memory lies where the host must not look (a look is a segmentation fault), its queues
// are threads, and its kernels are the CPU's. What runs on it gives the CPU's bits, or touched device memory from the
// host, missed an event, or handed a kernel memory that no GPU reaches.
// One per process, made at the first call.
#pragma once

#include <cstdint>
#include <functional>

#include "core/device/backend.h"
#include "core/device/device.h"

namespace lockstep::testing {

struct FakeGpuLimits {
  int devices = 4;
  int64_t memory_bytes = int64_t(4) << 30;  // of each
  std::function<void()> pinning = {};       // what pinning host memory takes: called meanwhile
};

// Makes it the backend of this process, with these limits from now on; the device `index`.
Device fake_gpu(int index = 0, const FakeGpuLimits& limits = {});

// Bytes at a device address, for fakes of libraries that work on device memory (NCCL): call it from work in a queue.
void* fake_gpu_bytes(const void* device_address);
// Runs `work` in the order of a queue of the fake GPU, on its thread.
void fake_gpu_enqueue(DeviceQueue& queue, std::function<void()> work);
void fake_gpu_enqueue(void* native, std::function<void()> work);  // of DeviceQueue::native()

}  // namespace lockstep::testing
