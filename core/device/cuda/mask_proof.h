// The proof that cuDNN's attention under masks may be trusted: values beside kernels of our own, and equal bits again.
#pragma once

#include <string>

#include "core/device/cuda/queue.h"
#include "core/kernels/args.h"

namespace lockstep::cuda {

// DeviceBackend::doubt_of_masks(): a few documents in two rows, heads of 64 and 128, causal and not.
std::string doubt_of_masks(CudaQueue& queue, DType dtype);

}  // namespace lockstep::cuda
