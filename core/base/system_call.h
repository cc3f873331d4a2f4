// Calls of the system that can fail, and the reason that errno gives. Plain functions.
#pragma once

#include <cerrno>
#include <cstring>

#include "core/base/error.h"

namespace lockstep {

// `done`: whether a call succeeded that sets errno where it fails. The reason ends the message: "PARTS: No space left
// on device". It is read in here, after the call: among the arguments of require() it might be read before the call,
// since C++ leaves the order of arguments open (scripts/check_errno finds that).
template <class... Parts>
void require_done(bool done, ExitCode code, const Parts&... parts) {
  const int error = errno;
  if (!done) [[unlikely]]
    throw Error(code, str(parts..., ": ", std::strerror(error)));
}

// Whether the storage itself is to blame, such as a full disk.
inline bool is_storage_error(int error) { return error == ENOSPC || error == EDQUOT || error == EIO || error == EFBIG; }

}  // namespace lockstep
