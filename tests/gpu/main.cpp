// Exit code 77 where there is no GPU to test: ctest counts that as skipped.
#include <cstdio>

#include "tests/gpu/gpu.h"

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
  return RUN_ALL_TESTS();
}
