// Versions of the libraries that are loaded at run time, against the headers compiled with. Stateless.
#pragma once

#include "core/base/error.h"

namespace lockstep {

// As NVIDIA's libraries count: 91900 is 9.19.0.
inline std::string library_version_text(size_t version) {
  return str(version / 10000, ".", version / 100 % 100, ".", version % 100);
}

// Throws Error(kDevice) where the library is of another major version than its headers. Minor ones keep the interface,
// and what an older one lacks it says itself.
inline void check_library_version(const char* library, size_t loaded, size_t compiled) {
  require(loaded / 10000 == compiled / 10000, ExitCode::kDevice, library, ": the library that was loaded is version ",
          library_version_text(loaded), ", but lockstep was compiled with ", library_version_text(compiled),
          "; install ", compiled / 10000, ".x, or put it first on LD_LIBRARY_PATH");
}

}  // namespace lockstep
