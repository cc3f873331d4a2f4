// Upper bounds on time. They hold on a machine of common speed on which nothing else runs, where LOCKSTEP_TEST_BOUNDS=1
// says so; elsewhere a test only says that nothing hangs.
// Plain functions.
#pragma once

#include <cstdlib>
#include <string_view>

namespace lockstep::testing {

inline bool bounds_are_tested() {
  const char* wish = std::getenv("LOCKSTEP_TEST_BOUNDS");
  return wish && std::string_view(wish) == "1";
}

// Seconds that something may take at most: `promised`, or `loose` where that cannot be told.
inline double time_bound(double promised, double loose = 60) { return bounds_are_tested() ? promised : loose; }

}  // namespace lockstep::testing
