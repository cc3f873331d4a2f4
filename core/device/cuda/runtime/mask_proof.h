// The proof that cuDNN's attention under masks may be trusted: values beside kernels of our own, and equal bits again.
#pragma once

#include <string>

#include "core/device/cuda/runtime/queue.h"
#include "core/kernels/attention/masked_attention.h"

namespace lockstep::cuda {

// DeviceBackend::doubt_of_masks(): a few documents in two rows, which are longer than the window. A window of more than
// 1,024 tokens is proven as one of 1,024.
std::string doubt_of_masks(CudaQueue& queue, const MaskedAttention& kind);

}  // namespace lockstep::cuda
