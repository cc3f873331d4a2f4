#include "data/text/tokenizer/normalizer.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "core/base/error.h"

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

}  // namespace lockstep
