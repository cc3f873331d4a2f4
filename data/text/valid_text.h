// ValidText: turns a stream of bytes into whole characters of valid UTF-8. Used by one thread.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep {

enum class InvalidBytes : uint8_t {
  kRefuse,
  kReplace  // by U+FFFD, one for each longest beginning of a character, as Python's bytes.decode("utf-8", "replace")
};

// How the bytes of a table are characters.
enum class TextEncoding : uint8_t { kUtf8, kLatin1, kWindows1252 };

// The first byte of `text` that is no part of a character in this encoding; -1 where there is none.
int64_t first_invalid(std::string_view text, TextEncoding encoding);
// The same characters in UTF-8, of text without such a byte.
std::string in_utf8(std::string_view text, TextEncoding encoding);

class ValidText {
 public:
  // where: of the text, for messages. advice: what to do about invalid bytes; it ends the message.
  ValidText(InvalidBytes invalid, std::string where, std::string advice)
      : invalid_(invalid), where_(std::move(where)), advice_(std::move(advice)) {}
  // Appends the characters of a piece of the stream to `text`; those that are cut at its end come with the next piece.
  // Throws ExitCode::kBadData naming the first invalid byte by its offset in the stream.
  void add(std::string_view bytes, std::string& text);
  void finish(std::string& text);  // the stream ends
  // Of the stream: where the next character begins that was not appended. begin_at(): the stream begins there.
  int64_t taken() const { return done_; }
  void begin_at(int64_t offset) { done_ = offset; }

 private:
  void invalid(int64_t offset, std::string& text) const;

  InvalidBytes invalid_;
  std::string where_, advice_;
  std::string cut_;   // the beginning of a character
  int64_t done_ = 0;  // bytes before it
};

}  // namespace lockstep
