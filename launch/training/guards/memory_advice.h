// What to change where a GPU's memory was not enough, by what took most of it.
// Plain functions.
#pragma once

#include <string>

#include "core/device/allocator.h"
#include "launch/config/settings.h"

namespace lockstep {

// "activations take most of it (3.00 GiB): ...", naming keys that would help with the values they have now.
std::string memory_advice(const BytesByUse& held, const Settings& settings, int ranks);

// What work() returns. Where a GPU had too little memory for it, the error says what to change.
template <class Work>
auto with_memory_advice(const Settings& settings, int ranks, const Work& work) {
  try {
    return work();
  } catch (const OutOfMemory& e) {
    if (e.code() != ExitCode::kDevice) throw;
    throw Error(e.code(), str(e.what(), "; ", memory_advice(e.held, settings, ranks)));
  }
}

}  // namespace lockstep
