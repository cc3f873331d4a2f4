// A target for the test of the plain driver: its input says how to go wrong.
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view what = fuzz::text_of(data, size);
  if (what == "signal") ::raise(SIGSEGV);
  if (what == "exception") throw std::runtime_error("uncaught");
  if (what == "exit") std::_Exit(3);
  if (what == "memory") {
    std::vector<char> large(size_t{300} << 20);
    fuzz::expect(large[size] == 0, "so that it is not optimised away");
  }
  fuzz::is_accepted({ExitCode::kBadData}, [&] {
    require(what != "refused", ExitCode::kBadData, "as it should be");
    require(what != "code", ExitCode::kConfig, "not the code that was expected");
  });
  return 0;
}
