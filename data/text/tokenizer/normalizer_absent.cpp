// Compiled in place of normalizer.cpp where the package libutf8proc-dev is not there.
#include <cstdlib>

#include "core/base/error.h"
#include "data/text/tokenizer/normalizer.h"

namespace lockstep {

bool can_normalise() { return false; }
namespace {
[[noreturn]] void refuse() {
  check(false, "this build has no utf8proc");
  std::abort();
}
}  // namespace
std::string nfc(std::string_view) { refuse(); }
size_t last_boundary(std::string_view text) { return text.size(); }
size_t next_boundary(std::string_view text, size_t) { return text.size(); }
CharacterKind kind_of(uint32_t) { refuse(); }
Decomposed canonical_decomposition(uint32_t) { refuse(); }
int combining_class(uint32_t) { refuse(); }
uint32_t lower_case(uint32_t c) { return c >= 'A' && c <= 'Z' ? c + 32 : c; }
uint32_t upper_case(uint32_t c) { return c >= 'a' && c <= 'z' ? c - 32 : c; }
bool is_printed(uint32_t c) { return c >= 0x20 && c != 0x7F; }
uint32_t title_case(uint32_t c) { return upper_case(c); }
bool is_letter(uint32_t c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
LetterCase letter_case(uint32_t c) {
  return c >= 'A' && c <= 'Z' ? LetterCase::kUpper : c >= 'a' && c <= 'z' ? LetterCase::kLower : LetterCase::kNone;
}
bool is_modifier(uint32_t c) { return c == '^' || c == '`'; }

}  // namespace lockstep
