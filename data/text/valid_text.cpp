#include "data/text/valid_text.h"

#include <cstring>

#include "core/base/error.h"
#include "data/text/vocabulary.h"

namespace lockstep {
namespace {

struct Character {
  size_t bytes = 0;  // of the character, or of the longest valid beginning of one; at least 1
  enum class Kind { kWhole, kCut, kInvalid } kind = Kind::kInvalid;
};

// What begins at `from`; kCut where the text ends within it.
Character character_at(std::string_view text, size_t from) {
  const auto at = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = at(from);
  if (lead < 0x80) return {1, Character::Kind::kWhole};
  const size_t length = lead >= 0xC2 && lead < 0xE0   ? 2
                        : lead >= 0xE0 && lead < 0xF0 ? 3
                        : lead >= 0xF0 && lead < 0xF5 ? 4
                                                      : 0;
  if (length == 0) return {1, Character::Kind::kInvalid};
  // Overlong forms, surrogates and values above U+10FFFF show in the second byte.
  const uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
  const uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
  for (size_t i = 1; i < length; ++i) {
    if (from + i == text.size()) return {i, Character::Kind::kCut};
    const uint8_t byte = at(from + i);
    if (byte < (i == 1 ? least : 0x80) || byte > (i == 1 ? most : 0xBF)) return {i, Character::Kind::kInvalid};
  }
  return {length, Character::Kind::kWhole};
}

bool is_ascii(std::string_view eight) {
  uint64_t word;
  std::memcpy(&word, eight.data(), 8);
  return (word & 0x8080808080808080u) == 0;
}

// Of the bytes 0x80 to 0x9F in windows-1252; 0: no character. All others are Latin-1's, whose bytes are code points.
constexpr uint16_t kWindows1252[32] = {0x20AC, 0,      0x201A, 0x0192, 0x201E, 0x2026, 0x2020, 0x2021,
                                       0x02C6, 0x2030, 0x0160, 0x2039, 0x0152, 0,      0x017D, 0,
                                       0,      0x2018, 0x2019, 0x201C, 0x201D, 0x2022, 0x2013, 0x2014,
                                       0x02DC, 0x2122, 0x0161, 0x203A, 0x0153, 0,      0x017E, 0x0178};

uint32_t code_point_of(uint8_t byte, TextEncoding encoding) {
  const bool other = encoding == TextEncoding::kWindows1252 && byte >= 0x80 && byte < 0xA0;
  return other ? kWindows1252[byte - 0x80] : byte;
}

}  // namespace

int64_t first_invalid(std::string_view text, TextEncoding encoding) {
  size_t at = 0;
  while (at < text.size()) {
    if (text.size() - at >= 8 && is_ascii(text.substr(at))) {
      at += 8;
      continue;
    }
    Character c{1, Character::Kind::kWhole};
    if (encoding == TextEncoding::kUtf8) c = character_at(text, at);
    else if (const auto byte = static_cast<uint8_t>(text[at]); byte >= 0x80 && code_point_of(byte, encoding) == 0)
      c.kind = Character::Kind::kInvalid;
    if (c.kind != Character::Kind::kWhole) return static_cast<int64_t>(at);
    at += c.bytes;
  }
  return -1;
}

std::string in_utf8(std::string_view text, TextEncoding encoding) {
  if (encoding == TextEncoding::kUtf8) return std::string(text);
  std::string out;
  for (char c : text) out += to_utf8(code_point_of(static_cast<uint8_t>(c), encoding));
  return out;
}

void ValidText::invalid(int64_t offset, std::string& text) const {
  require(invalid_ == InvalidBytes::kReplace, ExitCode::kBadData, where_, ": invalid UTF-8 at byte ", offset, advice_);
  text += "\xEF\xBF\xBD";
}

void ValidText::add(std::string_view bytes, std::string& text) {
  std::string joined;
  if (!cut_.empty()) bytes = joined = cut_.append(bytes);
  size_t at = 0, copied = 0;
  cut_.clear();
  while (at < bytes.size()) {
    if (bytes.size() - at >= 8 && is_ascii(bytes.substr(at))) {
      at += 8;
      continue;
    }
    const Character c = character_at(bytes, at);
    if (c.kind == Character::Kind::kCut) break;
    if (c.kind == Character::Kind::kInvalid) {
      text.append(bytes, copied, at - copied);
      invalid(done_ + static_cast<int64_t>(at), text);
      copied = at + c.bytes;
    }
    at += c.bytes;
  }
  text.append(bytes, copied, at - copied);
  done_ += static_cast<int64_t>(at);
  cut_ = std::string(bytes.substr(at));
}

void ValidText::finish(std::string& text) {
  if (!cut_.empty()) invalid(done_, text);
  cut_.clear();
  done_ = 0;
}

}  // namespace lockstep
