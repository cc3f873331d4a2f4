// Whether a sanitizer watches this build: steps take several times as long, and memory that it needs itself counts too.
#pragma once

namespace lockstep::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace lockstep::testing
