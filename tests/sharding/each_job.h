// Fixture of the suites whose tests hold for every job of training.h.
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

// The second and third argument of INSTANTIATE_TEST_SUITE_P.
inline auto each_job() {
  return ::testing::Values(NamedJob{"mlp", mlp_job}, NamedJob{"gpt", gpt_job}, NamedJob{"odd", odd_job});
}
inline std::string job_name(const ::testing::TestParamInfo<NamedJob>& info) { return info.param.name; }

}  // namespace lockstep::testing
