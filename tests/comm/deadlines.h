// Deadlines of groups in which a rank is missing: that rank alone may miss them, however busy the machine is.
// Plain functions.
#pragma once

#include <gtest/gtest-spi.h>
#include <gtest/gtest.h>

#include <chrono>
#include <exception>
#include <functional>
#include <string>
#include <thread>

#include "comm/communicator.h"
#include "tests/support/run_ranks.h"
#include "tests/support/time_bound.h"

namespace lockstep::testing {

// An upper bound on the time of what must not last until the deadline of its group, kPatience: far below that, and far
// above what a busy machine needs.
inline Seconds at_once() {
  const Seconds most(time_bound(5));
  EXPECT_LT(most, kPatience);
  return most;
}

// Returns when `ready` does, or after some minutes, which is a failure of the test.
inline void wait_until(const std::function<bool()>& ready) {
  const auto start = std::chrono::steady_clock::now();
  while (!ready()) {
    if (std::chrono::steady_clock::now() - start > Seconds(120)) {
      ADD_FAILURE() << "what was waited for did not happen";
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

// A rank that is to be missed stays away until the others have missed it.
inline void stay_away(const Communicator& comm) {
  wait_until([&] { return comm.failure().has_value(); });
}

// Calls `body`, in which a rank misses a deadline, with a short one. On a busy machine another rank may miss that one
// too: where `body` fails with the text of a missed deadline ("within 0.3 s"), it is called again with a longer one.
// All other failures, and those of the last call, are failures of the test.
inline void with_short_deadline(const std::function<void(Seconds deadline)>& body) {
  constexpr double kLongest = 60;
  for (const double seconds : {0.3, 3.0, kLongest}) {
    ::testing::TestPartResultArray failures;
    std::exception_ptr thrown;
    std::string said;
    {
      ::testing::ScopedFakeTestPartResultReporter collects(
          ::testing::ScopedFakeTestPartResultReporter::INTERCEPT_ALL_THREADS, &failures);
      try {
        body(Seconds(seconds));
      } catch (const std::exception& e) {
        thrown = std::current_exception();
        said = e.what();
      }
    }
    for (int i = 0; i < failures.size(); ++i) said += failures.GetTestPartResult(i).message();
    if (seconds < kLongest && said.find(str("within ", seconds, " s")) != std::string::npos) continue;
    for (int i = 0; i < failures.size(); ++i) {
      const ::testing::TestPartResult& r = failures.GetTestPartResult(i);
      ADD_FAILURE_AT(r.file_name() ? r.file_name() : "", r.line_number()) << r.message();
    }
    if (thrown) std::rethrow_exception(thrown);
    return;
  }
}

}  // namespace lockstep::testing
