// Unicode's normal form C (Unicode Standard Annex 15), and what BERT's normalizer asks of a character. The one door to
// utf8proc. Plain functions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

bool can_normalise();  // false in a build without utf8proc; nothing up to combining_class() is called there

// UTF-8. Throws ExitCode::kBadData for other bytes.
std::string nfc(std::string_view text);

// The last place in [0, text.size()] before which text can be normalised by itself, whatever follows: a character that
// no character combines with to its left. `from`: the first such place behind it, or the text's size.
size_t last_boundary(std::string_view text);
size_t next_boundary(std::string_view text, size_t from);

// Of a code point, whatever release of utf8proc the build has: categories are those of Unicode 8, decompositions those
// of Unicode 9 and lower case that of Unicode 17, as the package `tokenizers` (0.23) has them.
struct CharacterKind {
  bool control = false;      // Cc, Cf or Co
  bool mark = false;         // Mn
  bool punctuation = false;  // of ASCII all that is printed and no letter, digit or space; else P
};
CharacterKind kind_of(uint32_t code_point);
struct Decomposed {
  std::array<uint32_t, 8> points{};
  size_t count = 0;
};
Decomposed canonical_decomposition(uint32_t code_point);  // itself where it has none
int combining_class(uint32_t code_point);

// Unicode's White_Space, in any build.
constexpr bool is_white_space(uint32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

// Of ASCII alone in a build without utf8proc; others are themselves, printed, and no letters there.
uint32_t lower_case(uint32_t code_point);  // of one character; U+0130, which has two, is itself
uint32_t upper_case(uint32_t code_point);  // of one character; one that has several is itself
bool is_printed(uint32_t code_point);      // Python's str.isprintable()
uint32_t title_case(uint32_t code_point);  // likewise
bool is_letter(uint32_t code_point);       // L
enum class LetterCase : uint8_t { kNone, kUpper, kLower, kTitle };
LetterCase letter_case(uint32_t code_point);  // Lu, Ll, Lt
bool is_modifier(uint32_t code_point);        // Mn, Me, Cf, Lm or Sk

}  // namespace lockstep
