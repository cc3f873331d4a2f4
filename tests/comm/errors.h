// What tests of communicators share: an error as a value, and parts of its text. Plain functions.
#pragma once

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/error.h"

namespace lockstep::testing {

// What f throws; code kOk where it throws nothing of ours.
template <class F>
Error error_of(F&& f) {
  try {
    f();
  } catch (const Error& e) {
    return e;
  } catch (const std::exception& e) {
    return Error(ExitCode::kOk, str("another exception: ", e.what()));
  }
  return Error(ExitCode::kOk, "no error");
}

inline void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const auto& part : parts) EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

}  // namespace lockstep::testing
