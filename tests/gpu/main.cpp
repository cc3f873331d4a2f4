// Exit code 77 where there is no GPU to test: ctest counts that as skipped.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>

#include "tests/gpu/gpu.h"

namespace {

// Plants what begins with a test.
class Planter final : public testing::EmptyTestEventListener {
  void OnTestStart(const testing::TestInfo& test) override {
    const std::string name = lockstep::str(test.test_suite_name(), ".", test.name());
    const std::string fault = lockstep::testing::planted_fault();
    if (fault == "hang " + name) std::this_thread::sleep_for(std::chrono::hours(1));
    if (fault == "sticky " + name) lockstep::testing::fake_gpu_break();
  }
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  std::string why;
  if (!lockstep::testing::find_gpu(&why)) {
    std::printf("skipped: no GPU: %s\n", why.c_str());
    return 77;
  }
  const lockstep::DeviceBackend& backend = lockstep::device_backend();
  const lockstep::DeviceProperties p = backend.properties(0);
  std::printf("on %s (%s), %s, %s\n", p.name.c_str(), p.architecture.c_str(), backend.driver().c_str(),
              backend.versions().c_str());
  testing::UnitTest::GetInstance()->listeners().Append(new Planter);
  const int code = RUN_ALL_TESTS();
  std::printf("what the libraries chose:\n%s", backend.choices().c_str());
  return code;
}
