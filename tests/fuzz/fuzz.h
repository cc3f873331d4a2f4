// What the fuzz targets share: how an outcome is judged, a scratch folder, and a mutator that knows a format's words.
// A target is one source file that defines LLVMFuzzerTestOneInput and, where useful, LLVMFuzzerCustomMutator:
// libFuzzer's own interface. With clang it is linked to libFuzzer, with another compiler to plain_driver.cpp. An input
// is refused by an Error with one of the codes that the target names. Everything else is a finding and ends the
// process: another code, another exception, a broken promise about what was accepted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.h"

extern "C" {
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);
// Changes `size` bytes of a buffer that holds `capacity`; returns the new size. Given by the driver.
size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t capacity);
// Optional in a target: used instead of LLVMFuzzerMutate.
size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed);
}

namespace lockstep::fuzz {

inline std::string_view text_of(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}

// Prints what was found and aborts.
[[noreturn]] void report(const std::string& what);

template <class... Parts>
void expect(bool holds, const Parts&... parts) {
  if (!holds) report(str(parts...));
}

// How many calls of is_accepted() ended either way: a target that refuses everything finds nothing.
struct Outcomes {
  uint64_t accepted = 0, refused = 0;
  std::string last_refusal;  // its message
};
Outcomes& outcomes();
void count_refusal(const Error& e);  // and prints it where LOCKSTEP_FUZZ_SAY is set in the environment

// Runs `body`: true where it returns, false where it throws an Error with one of these codes. Another Error is a
// finding; exceptions of other types are left to end the process.
template <class Body>
bool is_accepted(std::initializer_list<ExitCode> refusals, const Body& body) {
  try {
    body();
  } catch (const Error& e) {
    for (ExitCode code : refusals)
      if (e.code() == code) {
        count_refusal(e);
        return false;
      }
    report(str("exit code ", static_cast<int>(e.code()), ": ", e.what()));
  }
  ++outcomes().accepted;
  return true;
}

// A new folder: in TMPDIR where that is set, else in memory (/dev/shm) where there is such, else in /tmp.
std::string make_folder();
// A path in a folder of this process, which is removed when the process ends normally; where it does not, the plain
// driver and scripts/fuzz remove it.
std::string scratch(const std::string& name);
void write_file(const std::string& path, std::string_view bytes);

// The words of any JSON, and these.
std::vector<std::string_view> with_json_words(const std::vector<std::string_view>& more);
// One mutation: at times one of `words` is put in, or takes the place of bytes; otherwise LLVMFuzzerMutate.
size_t mutate_with_words(uint8_t* data, size_t size, size_t capacity, unsigned seed,
                         const std::vector<std::string_view>& words);

}  // namespace lockstep::fuzz
