// Which GPUs a build's code serves. Pure text and arithmetic, without CUDA's headers.
#pragma once

#include <string_view>

namespace lockstep {

// `built`: the build's list in CMake's words, "80-real|90-real|100": real is machine code, which serves GPUs of the
// same major version from that minor one on; virtual is code that the driver translates for any later GPU; one without
// a word is both. "90a" serves 9.0 alone. Entries that are no number ("native") are taken to serve.
inline bool serves_architecture(std::string_view built, int major, int minor) {
  while (!built.empty()) {
    const size_t end = built.find('|');
    const std::string_view entry = built.substr(0, end);
    built.remove_prefix(end == std::string_view::npos ? built.size() : end + 1);
    int number = 0;
    size_t digits = 0;
    while (digits < entry.size() && entry[digits] >= '0' && entry[digits] <= '9')
      number = 10 * number + (entry[digits++] - '0');
    if (digits == 0) return true;
    const std::string_view rest = entry.substr(digits);
    const bool exact = rest.starts_with('a');
    const bool real = !rest.ends_with("-virtual"), translated = !rest.ends_with("-real") && !exact;
    const int wanted = 10 * major + minor;
    if (number == wanted) return true;
    if (!exact && real && number / 10 == major && number < wanted) return true;
    if (translated && number < wanted) return true;
  }
  return false;
}

}  // namespace lockstep
