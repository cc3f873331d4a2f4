#include "data/text/jinja/characters.h"

#include <algorithm>
#include <iterator>
#include <span>

#include "data/text/jinja/unicode_tables.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/vocabulary.h"

namespace lockstep::jinja {
namespace {

bool is_within(std::span<const CodePoints> ranges, uint32_t c) {
  const auto behind = std::upper_bound(ranges.begin(), ranges.end(), c,
                                       [](uint32_t point, const CodePoints& r) { return point < r.first; });
  return behind != ranges.begin() && c <= std::prev(behind)->last;
}

const SeveralCapitals* several_capitals(uint32_t c) {
  const auto found = std::lower_bound(std::begin(kSeveralCapitals), std::end(kSeveralCapitals), c,
                                      [](const SeveralCapitals& s, uint32_t point) { return s.of < point; });
  return found != std::end(kSeveralCapitals) && found->of == c ? found : nullptr;
}

}  // namespace

int decimal_of(uint32_t c) {
  const auto behind = std::upper_bound(std::begin(kDecimalZeros), std::end(kDecimalZeros), c);
  if (behind == std::begin(kDecimalZeros)) return -1;
  const uint32_t value = c - *std::prev(behind);
  return value < 10 ? static_cast<int>(value) : -1;
}

bool is_digit(uint32_t c) { return decimal_of(c) >= 0 || is_within(kOtherDigits, c); }
bool is_numeric(uint32_t c) { return is_digit(c) || is_within(kOtherNumbers, c); }
bool is_alpha(uint32_t c) { return is_letter(c); }
bool is_alphanumeric(uint32_t c) { return is_alpha(c) || is_numeric(c); }

bool is_upper(uint32_t c) { return letter_case(c) == LetterCase::kUpper || is_within(kOtherCapitals, c); }
bool is_lower(uint32_t c) { return letter_case(c) == LetterCase::kLower || is_within(kOtherSmall, c); }
bool is_title(uint32_t c) { return letter_case(c) == LetterCase::kTitle; }
bool is_cased(uint32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }
bool is_case_ignorable(uint32_t c) { return is_modifier(c) || is_within(kOtherIgnorable, c); }

std::string upper_of(uint32_t c) {
  const SeveralCapitals* several = several_capitals(c);
  return several ? std::string(several->upper) : to_utf8(upper_case(c));
}
std::string title_of(uint32_t c) {
  const SeveralCapitals* several = several_capitals(c);
  return several ? std::string(several->title) : to_utf8(title_case(c));
}
std::string lower_of(uint32_t c) { return c == 0x130 ? "i\u0307" : to_utf8(lower_case(c)); }

}  // namespace lockstep::jinja
