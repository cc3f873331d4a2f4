// MemoryUse: what bytes are for, in the allocator's census and in out-of-memory messages. Whoever allocates says so
// (WithMemoryUse in core/device/context.h).
// A plain value.
#pragma once

#include <cstdint>
#include <string_view>

namespace lockstep {

enum class MemoryUse : uint8_t {
  kActivations,  // what the model makes as it runs, and whatever nobody labelled: the default
  kParameters,   // masters, and copies that stay in another type
  kGradients,    // of micro-batches and their sums, also of other ranks
  kMoments,
  kGathered,  // parameters of other ranks, for as long as they are used
  kBatches,   // samples that the loader has ready
  kScratch,   // a kernel's own space
  kInHost,    // masters and moments that stay in host memory
};
constexpr int kMemoryUses = 8;

constexpr std::string_view to_text(MemoryUse use) {
  constexpr std::string_view kNames[kMemoryUses] = {"activations", "parameters", "gradients", "moments",
                                                    "gathered",    "batches",    "scratch",   "in_host"};
  return kNames[static_cast<int>(use)];
}

}  // namespace lockstep
