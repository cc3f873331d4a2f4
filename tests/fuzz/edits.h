// Damage to a file, written as bytes: the input of a target is a list of edits, so that the original is known and what
// opens can be compared with it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <string_view>

namespace lockstep::fuzz {

// One edit takes 6 bytes: kind, place (24 bits, modulo the size), value, count. What is left over is ignored.
inline std::string edited(std::string text, std::string_view edits) {
  for (; edits.size() >= 6; edits.remove_prefix(6)) {
    auto byte = [&](size_t i) { return static_cast<uint8_t>(edits[i]); };
    const size_t place = byte(1) | size_t{byte(2)} << 8 | size_t{byte(3)} << 16;
    const size_t at = place % (text.size() + 1), count = std::min<size_t>(byte(5), text.size() - at);
    const char value = static_cast<char>(byte(4));
    switch (byte(0) % 8) {
      case 0:  // flips bits
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (value ? value : 1));
        break;
      case 1:  // sets a byte
        if (at < text.size()) text[at] = value;
        break;
      case 2: text.replace(at, count, count, value); break;           // a piece of one value
      case 3: text.erase(at, count); break;                           // a piece is gone
      case 4: text.insert(at, byte(5), value); break;                 // a piece too many
      case 5: text.resize(at); break;                                 // cut short
      case 6: text.replace(at, count, text.substr(0, count)); break;  // a piece of the beginning
      default: {                                                      // a piece of what follows, somewhere else
        const std::string piece = text.substr(at, count);
        text.replace(std::min(text.size(), size_t{byte(4)} * 16), count, piece);
      }
    }
  }
  return text;
}

// A mutation of an input of one byte and such edits: the first byte or one edit is made anew, or an edit goes.
inline size_t mutate_edits(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  constexpr size_t kMost = 8, kSize = 6;
  std::minstd_rand random(seed);
  const size_t edits = size > 0 ? std::min(kMost, (size - 1) / kSize) : 0;
  if (size == 0 || random() % 16 == 0) data[0] = static_cast<uint8_t>(random() >> 8);
  const size_t which = random() % (edits + 1);
  if (which < edits && random() % 3 == 0) {
    std::copy(data + 1 + (which + 1) * kSize, data + 1 + edits * kSize, data + 1 + which * kSize);
    return 1 + (edits - 1) * kSize;
  }
  if (which == kMost || 1 + (which + 1) * kSize > capacity) return 1 + edits * kSize;
  for (size_t i = 0; i < kSize; ++i) data[1 + which * kSize + i] = static_cast<uint8_t>(random() >> 8);
  return 1 + std::max(edits, which + 1) * kSize;
}

}  // namespace lockstep::fuzz
