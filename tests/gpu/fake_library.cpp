// The symbols of the libraries for CUDA and NCCL, faked: beside a copy of the programs this makes them find the fake
// GPU, so that scripts for GPUs can be tried with the very commands of a machine that has one.
#include "tests/support/fake_gpu.h"
#include "tests/support/fake_nccl.h"

extern "C" __attribute__((visibility("default"))) lockstep::DeviceBackend* lockstep_cuda_backend(
    const lockstep::ScratchSource&) {
  lockstep::testing::fake_gpu(0, {.devices = 1});
  return &lockstep::device_backend();
}

extern "C" __attribute__((visibility("default"))) lockstep::NcclApi* lockstep_nccl_api() {
  return &lockstep::testing::fake_nccl();
}
