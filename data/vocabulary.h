// A vocabulary: text to token ids and back, by byte or by character. Also the UTF-8 reader that both need.
// A plain value.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class TextLevel : uint8_t { kByte, kChar };
std::string_view to_text(TextLevel level);  // "byte", "char"

class Vocabulary {
 public:
  static Vocabulary bytes();  // token = byte
  // token = index in this list of Unicode code points, sorted and unique.
  static Vocabulary chars(std::vector<uint32_t> code_points);
  TextLevel level() const { return level_; }
  int64_t size() const { return level_ == TextLevel::kByte ? 256 : static_cast<int64_t>(code_points_.size()); }
  const std::vector<uint32_t>& code_points() const { return code_points_; }  // empty at byte level
  // Throws ExitCode::kBadData naming a character that is not in the vocabulary, or invalid UTF-8.
  std::vector<int32_t> encode(std::string_view text) const;
  int32_t token_of(uint32_t code_point) const;  // -1 where there is none
  // UTF-8 at character level. Throws ExitCode::kBadData for an id out of range.
  std::string decode(const std::vector<int32_t>& tokens) const;

 private:
  TextLevel level_ = TextLevel::kByte;
  std::vector<uint32_t> code_points_;
};

// The first token that two vocabularies give different meanings, in words: "token 3 is 'e' there and 'q' here"; empty
// where they are equal.
std::string first_difference(const Vocabulary& there, const Vocabulary& here);

// As checkpoints keep it: "byte", or "char" and the characters; "" for none. And back; null for "". Throws
// ExitCode::kBadData for any other text.
std::string vocabulary_text(const Vocabulary* vocabulary);
std::unique_ptr<Vocabulary> parse_vocabulary(const std::string& text);

// A character as messages show it: 'e' (U+0065); control characters by number alone.
std::string character_text(uint32_t code_point);

// UTF-8 read in pieces of any size. Overlong forms, surrogates and values past U+10FFFF are invalid.
class Utf8Reader {
 public:
  enum class Result { kMore, kCodePoint, kInvalid };
  Result next(uint8_t byte);
  uint32_t code_point() const { return value_; }
  bool between() const { return missing_ == 0; }  // no character is half read
  int length() const { return length_; }          // bytes of the character so far

 private:
  uint32_t value_ = 0, least_ = 0;
  int missing_ = 0, length_ = 0;
};

std::string to_utf8(uint32_t code_point);

}  // namespace lockstep
