// The suite EachJob: tests that hold for every job of training.h.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>

#include "tests/sharding/training.h"

namespace lockstep::testing {

struct NamedJob {
  const char* name;
  Job (*make)();
};
inline std::ostream& operator<<(std::ostream& out, const NamedJob& n) { return out << n.name; }

class EachJob : public ::testing::TestWithParam<NamedJob> {};
INSTANTIATE_TEST_SUITE_P(Jobs, EachJob,
                         ::testing::Values(NamedJob{"mlp", mlp_job}, NamedJob{"gpt", gpt_job},
                                           NamedJob{"odd", odd_job}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace lockstep::testing
