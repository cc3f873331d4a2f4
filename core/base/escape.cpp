#include "core/base/escape.h"

#include <cstdint>

namespace lockstep {
namespace {

// The bytes of the UTF-8 character at `at`, and its code point; 0 where there is none.
size_t character(std::string_view text, size_t at, uint32_t& point) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[at + i]); };
  const uint8_t first = byte(0);
  const size_t length = first < 0x80 ? 1 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  if (length == 0 || first > 0xF4 || at + length > text.size()) return 0;
  point = length == 1 ? first : first & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
    point = point << 6 | (byte(i) & 0x3Fu);
  }
  const uint32_t least = length == 4 ? 0x10000 : length == 3 ? 0x800 : 0;
  return point < least || point > 0x10FFFF || (point >= 0xD800 && point < 0xE000) ? 0 : length;
}

bool is_control(uint32_t c) {
  return c < 0x20 || (c >= 0x7F && c < 0xA0) || (c >= 0x202A && c <= 0x202E) || (c >= 0x2066 && c <= 0x2069);
}

std::string hex(uint32_t value, int digits) {
  std::string out;
  for (int shift = 4 * (digits - 1); shift >= 0; shift -= 4) out += "0123456789abcdef"[value >> shift & 15];
  return out;
}

}  // namespace

std::string escaped(std::string_view text, Lines lines) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    uint32_t c = 0;
    const size_t length = character(text, at, c);
    const bool keep = lines == Lines::kKeep && (c == '\n' || c == '\t');
    if (length == 0) out += "\\x" + hex(static_cast<uint8_t>(text[at]), 2);
    else if (keep || !is_control(c)) out += text.substr(at, length);
    else if (c == '\n') out += "\\n";
    else if (c == '\t') out += "\\t";
    else out += c < 0x20 ? "\\x" + hex(c, 2) : "\\u" + hex(c, 4);
    at += length == 0 ? 1 : length;
  }
  return out;
}

}  // namespace lockstep
