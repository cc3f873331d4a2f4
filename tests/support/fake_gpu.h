// A fake GPU: a DeviceBackend on the CPU. Device memory is mapped without access, so that a host read or write of it
// crashes; queues are threads; kernels are the CPU's. Correct code gives the CPU's bits on it. Code that touches device
// memory from the host, misses an event, or passes kernels memory that a GPU cannot access fails. One per process,
// created at the first call.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/device/backend.h"
#include "core/device/device.h"

namespace lockstep::testing {

struct FakeGpuLimits {
  int devices = 4;
  int64_t memory_bytes = int64_t(4) << 30;  // of each
  std::function<void()> pinning = {};       // called while host memory is pinned, to simulate its cost
  bool pins = true;                         // whether memory that is there already can be pinned
  std::string tries = "";                   // the word of LOCKSTEP_CUDA_TRY that is on
  std::function<std::string()> doubt = {};  // what a rank says of the library's masks; absent: no doubt
};

// Makes it the backend of this process, with these limits from now on; returns device `index`.
Device fake_gpu(int index = 0, const FakeGpuLimits& limits = {});

// From now on all work and every allocation throws ExitCode::kDevice, as after a fault of a real GPU's process.
void fake_gpu_break();

// Copies of memory that is neither its own nor pinned, so far: the host has waited for each.
int64_t fake_gpu_plain_copies();

// The kernels of core/kernels/kernel_list.h that have not run on it in this process.
std::vector<std::string> fake_gpu_kernels_not_run();

// Bytes at a device address, for fakes of libraries that work on device memory (NCCL): call it from work in a queue.
void* fake_gpu_bytes(const void* device_address);
// Runs `work` in the order of a queue of the fake GPU, on its thread.
void fake_gpu_enqueue(DeviceQueue& queue, std::function<void()> work);
void fake_gpu_enqueue(void* native, std::function<void()> work);  // of DeviceQueue::native()

}  // namespace lockstep::testing
