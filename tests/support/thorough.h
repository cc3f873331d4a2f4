// Quick tests take a slice of their cases that has each value of each dimension; the same tests in the tier "nightly"
// (CMake's lockstep_thorough) take the whole product of the dimensions.
#pragma once

#include <cstdlib>
#include <string_view>

namespace lockstep::testing {

// Whether every case is taken: LOCKSTEP_TEST_THOROUGH=1.
inline bool thorough() {
  const char* wish = std::getenv("LOCKSTEP_TEST_THOROUGH");
  return wish && std::string_view(wish) == "1";
}

}  // namespace lockstep::testing
