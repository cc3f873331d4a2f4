#include "data/text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <span>

#include "core/base/error.h"
#include "data/text/tokenizer/unicode_8.h"

namespace lockstep {
namespace {

// ASCII, and the blocks of Chinese, Japanese and Korean whose characters begin anew: kana, ideographs, syllables of
// Hangul. Others may as well, but texts of other scripts have spaces or line ends.
bool begins_anew(std::string_view text, size_t at) {
  const auto byte = static_cast<uint8_t>(text[at]);
  if (byte < 0x80) return true;
  if (byte < 0xE3 || byte > 0xED || at + 2 >= text.size()) return false;
  const uint32_t point = (byte & 0x0Fu) << 12 | (static_cast<uint8_t>(text[at + 1]) & 0x3Fu) << 6 |
                         (static_cast<uint8_t>(text[at + 2]) & 0x3Fu);
  return (point >= 0x3041 && point <= 0x3096) || (point >= 0x30A1 && point <= 0x30FA) ||
         (point >= 0x3400 && point <= 0x9FFF) || (point >= 0xAC00 && point <= 0xD7A3);
}

bool is_in(std::span<const CodePoints> ranges, uint32_t c) {
  const auto found = std::upper_bound(ranges.begin(), ranges.end(), c,
                                      [](uint32_t point, const CodePoints& r) { return point < r.first; });
  return found != ranges.begin() && c <= std::prev(found)->last;
}

// Those of them with a combining class other than 0 in Unicode 9.
constexpr CodePoints kOrderedInUnicode9[] = {{0x8D4, 0x8E1},     {0x1DFB, 0x1DFB},   {0x11442, 0x11442},
                                             {0x11446, 0x11446}, {0x11C3F, 0x11C3F}, {0x1E000, 0x1E02A},
                                             {0x1E944, 0x1E94A}};

// Capital letters of Unicode 16 and 17, and how far ahead their small ones are.
struct Capitals {
  uint32_t first, last;
  int32_t ahead;
};
constexpr Capitals kLaterCapitals[] = {{0x1C89, 0x1C89, 1},    {0xA7CB, 0xA7CB, 0x264 - 0xA7CB},
                                       {0xA7CC, 0xA7CC, 1},    {0xA7CE, 0xA7CE, 1},
                                       {0xA7D2, 0xA7D2, 1},    {0xA7D4, 0xA7D4, 1},
                                       {0xA7DA, 0xA7DA, 1},    {0xA7DC, 0xA7DC, 0x19B - 0xA7DC},
                                       {0x10D50, 0x10D65, 32}, {0x16EA0, 0x16EB8, 27}};

struct Freed {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

bool can_normalise() { return true; }

std::string nfc(std::string_view text) {
  if (std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; }))
    return std::string(text);
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  const std::unique_ptr<utf8proc_uint8_t, Freed> owned(made);
  require(size >= 0, ExitCode::kBadData, "the text cannot be normalised: ", utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(made), static_cast<size_t>(size)};
}

size_t last_boundary(std::string_view text) {
  for (size_t at = text.size(); at-- > 0;)
    if (begins_anew(text, at)) return at;
  return 0;
}

size_t next_boundary(std::string_view text, size_t from) {
  for (size_t at = from + 1; at < text.size(); ++at)
    if (begins_anew(text, at)) return at;
  return text.size();
}

CharacterKind kind_of(uint32_t c) {
  if (c < 0x80) {
    const bool letter = (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
    return {.control = c < 0x20 || c == 0x7F, .punctuation = c > 0x20 && c < 0x7F && !letter};
  }
  if (is_in(kSinceUnicode9, c)) return {};
  // Of another category in Unicode 8 than today.
  switch (c) {
    case 0x1734: return {.mark = true};
    case 0x1885:
    case 0x1886:
    case 0xA9BD: return {};
    case 0x166D:
    case 0x111C9: return {.punctuation = true};
  }
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return {.control =
              category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO,
          .mark = category == UTF8PROC_CATEGORY_MN,
          .punctuation = category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO};
}

Decomposed canonical_decomposition(uint32_t c) {
  Decomposed out{{c}, 1};
  if (c < 0xC0 || is_in(kSinceUnicode9, c)) return out;
  utf8proc_int32_t points[8];
  int last_class = 0;
  const utf8proc_ssize_t count =
      utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), points, 8, UTF8PROC_DECOMPOSE, &last_class);
  check(count > 0 && count <= 8, "code point ", c, " decomposes into ", count);
  out.count = static_cast<size_t>(count);
  std::copy_n(points, out.count, out.points.begin());
  return out;
}

int combining_class(uint32_t c) {
  if (c < 0x300 || c == 0x1715 || (is_in(kSinceUnicode9, c) && !is_in(kOrderedInUnicode9, c))) return 0;
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(c))->combining_class;
}

uint32_t lower_case(uint32_t c) {
  if (c < 0x80) return c >= 'A' && c <= 'Z' ? c + 32 : c;
  if (c == 0x130) return c;
  for (const Capitals& k : kLaterCapitals)
    if (c >= k.first && c <= k.last) return static_cast<uint32_t>(static_cast<int32_t>(c) + k.ahead);
  return static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c)));
}

uint32_t upper_case(uint32_t c) {
  if (c < 0x80) return c >= 'a' && c <= 'z' ? c - 32 : c;
  return static_cast<uint32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(c)));
}

uint32_t title_case(uint32_t c) {
  return c < 0x80 ? upper_case(c) : static_cast<uint32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(c)));
}

LetterCase letter_case(uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_LU: return LetterCase::kUpper;
    case UTF8PROC_CATEGORY_LL: return LetterCase::kLower;
    case UTF8PROC_CATEGORY_LT: return LetterCase::kTitle;
    default: return LetterCase::kNone;
  }
}

bool is_modifier(uint32_t c) {
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
  }
}

bool is_printed(uint32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7F;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(c))) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP: return false;
    default: return true;
  }
}

bool is_letter(uint32_t c) {
  const auto category = utf8proc_category(static_cast<utf8proc_int32_t>(c));
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

}  // namespace lockstep
