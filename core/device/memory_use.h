// MemoryUse: what bytes are for, in the allocator's census and in out-of-memory messages. The allocating code
// labels it (WithMemoryUse in core/device/context.h).
// A plain value.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class MemoryUse : uint8_t {
  kActivations,  // tensors of the forward and backward pass; the default for memory without a label
  kParameters,   // masters, and copies that stay in another type
  kGradients,    // of micro-batches, and their sums, including parts received from other ranks
  kMoments,
  kGathered,  // parameters gathered from other ranks, while in use
  kBatches,   // samples that the loader prefetched
  kScratch,   // workspaces of kernels
  kInHost,    // masters and moments that stay in host memory
};
constexpr int kMemoryUses = 8;

constexpr std::string_view to_text(MemoryUse use) {
  constexpr std::string_view kNames[kMemoryUses] = {"activations", "parameters", "gradients", "moments",
                                                    "gathered",    "batches",    "scratch",   "in_host"};
  return kNames[static_cast<int>(use)];
}

}  // namespace lockstep
