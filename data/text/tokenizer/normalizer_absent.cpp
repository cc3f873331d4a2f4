// Compiled in place of normalizer.cpp where the package libutf8proc-dev is not there.
#include "core/base/error.h"
#include "data/text/tokenizer/normalizer.h"

namespace lockstep {

bool can_normalise() { return false; }
std::string nfc(std::string_view) {
  check(false, "this build has no utf8proc");
  return {};
}
size_t last_boundary(std::string_view text) { return text.size(); }
size_t next_boundary(std::string_view text, size_t) { return text.size(); }

}  // namespace lockstep
