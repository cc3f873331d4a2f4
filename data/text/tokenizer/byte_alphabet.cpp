#include <algorithm>
#include <array>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "data/text/tokenizer/bpe_tables.h"
#include "data/text/vocabulary.h"

namespace lockstep {
namespace {

constexpr uint32_t kCharacters = 256 + 68;  // 68 bytes are written as U+0100 and after

struct Alphabet {
  std::array<uint32_t, 256> character{};
  std::array<int16_t, kCharacters> byte{};
};

const Alphabet& alphabet() {
  static const Alphabet made = [] {
    Alphabet a;
    a.byte.fill(-1);
    uint32_t next = 256;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool itself = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      a.character[b] = itself ? b : next++;
      a.byte[a.character[b]] = static_cast<int16_t>(b);
    }
    return a;
  }();
  return made;
}

}  // namespace

uint32_t alphabet_character(uint8_t byte) { return alphabet().character[byte]; }

std::string quoted_token(std::string_view text) { return str("'", escaped(text, Lines::kEscape), "'"); }

std::string first_token_difference(const std::vector<std::string>& there, const std::vector<std::string>& here) {
  const auto [x, y] = std::mismatch(there.begin(), there.end(), here.begin(), here.end());
  if (x == there.end() && y == here.end()) return "";
  return str("token ", x - there.begin(), " is ", x == there.end() ? "nothing" : quoted_token(*x), " there and ",
             y == here.end() ? "nothing" : quoted_token(*y), " here (vocabularies of ", there.size(), " and ",
             here.size(), " tokens)");
}

std::string to_alphabet(std::string_view bytes) {
  std::string out;
  for (char b : bytes) out += to_utf8(alphabet_character(static_cast<uint8_t>(b)));
  return out;
}

std::optional<std::string> from_alphabet(std::string_view text) {
  std::string out;
  Utf8Reader reader;
  for (char c : text) {
    const auto result = reader.next(static_cast<uint8_t>(c));
    if (result == Utf8Reader::Result::kMore) continue;
    if (result == Utf8Reader::Result::kInvalid || reader.code_point() >= kCharacters) return std::nullopt;
    const int16_t byte = alphabet().byte[reader.code_point()];
    if (byte < 0) return std::nullopt;
    out.push_back(static_cast<char>(byte));
  }
  return reader.between() ? std::optional(out) : std::nullopt;
}

}  // namespace lockstep
