// Scratch memory for CUDA queues, straight from the fake CUDA runtime. A plain value.
#pragma once

#include "core/device/cuda/runtime/queue.h"

namespace lockstep::testing {

// Throws ExitCode::kDevice where there is no more.
inline constexpr ScratchSource kCudaScratch{[](int64_t bytes, const DeviceQueue&, const Device&) {
                                              void* data = nullptr;
                                              check_cuda(cudaMalloc(&data, static_cast<size_t>(bytes)),
                                                         "taking scratch memory");
                                              return data;
                                            },
                                            [](void* data, const Device&) noexcept { (void)cudaFree(data); }};

}  // namespace lockstep::testing
