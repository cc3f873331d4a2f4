// Vocabulary: maps text to token ids and back, by byte, by character or by byte pairs. A plain value. Also a UTF-8
// decoder.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

class BytePairs;
struct Surround;  // data/text/tokenizer/bpe_tables.h
class PieceModel;
class WordPieces;
struct ChatSource;

enum class TextLevel : uint8_t { kByte, kChar, kBpe, kPieces, kWords };
std::string_view to_text(TextLevel level);  // "byte", "char", "bpe", "sentencepiece", "wordpiece"

class Vocabulary {
 public:
  static Vocabulary bytes();  // token = byte
  // token = index in this list of Unicode code points, sorted and unique.
  static Vocabulary chars(std::vector<uint32_t> code_points);
  // tokens of a byte-level BPE tokenizer (data/text/tokenizer/bpe.h).
  static Vocabulary byte_pairs(std::shared_ptr<const BytePairs> pairs);
  // tokens of a SentencePiece model (data/text/tokenizer/pieces.h).
  static Vocabulary pieces(std::shared_ptr<const PieceModel> model);
  // tokens of a WordPiece tokenizer (data/text/tokenizer/word_pieces.h).
  static Vocabulary word_pieces(std::shared_ptr<const WordPieces> words);
  TextLevel level() const { return level_; }
  int64_t size() const;
  const std::vector<uint32_t>& code_points() const { return code_points_; }  // empty but at character level
  const BytePairs* pairs() const { return pairs_.get(); }                    // null but at level kBpe
  const PieceModel* pieces() const { return pieces_.get(); }                 // null but at level kPieces
  const WordPieces* words() const { return words_.get(); }                   // null but at level kWords
  bool has_tokenizer() const { return pairs_ || pieces_ || words_; }         // else tokens are bytes or characters
  // The chat template that goes with it (data/text/chat_template.h); null: none is known. It changes no token.
  const ChatSource* chat() const { return chat_.get(); }
  void set_chat(std::shared_ptr<const ChatSource> chat) { chat_ = std::move(chat); }
  // Of an encoder's tokenizer: what a record begins and ends with, the token that hides others, and those that are
  // never hidden.
  std::span<const int32_t> record_begin() const;
  std::span<const int32_t> record_end() const;
  const Surround* around() const;  // both; null where there is no such tokenizer
  int32_t mask() const;            // -1: there is none
  bool is_never_hidden(int32_t id) const;
  int32_t special(std::string_view text) const;    // the added token or control piece; -1 if there is none
  std::vector<std::string> special_texts() const;  // of those that texts hold as text unless they are asked for
  // Throws ExitCode::kBadData naming a character that is not in the vocabulary, or invalid UTF-8. Special tokens in the
  // text are text, or with `special_tokens` those tokens.
  std::vector<int32_t> encode(std::string_view text, bool special_tokens = false) const;
  int32_t token_of(uint32_t code_point) const;  // at character level; -1 if there is none
  // Returns UTF-8 at character level; at the others tokens may be parts of characters. Throws ExitCode::kBadData for an
  // id out of range.
  std::string decode(const std::vector<int32_t>& tokens) const;
  // The bytes that a token stands for within a text: none of special tokens, control pieces and the unknown one.
  std::string text_of(int32_t token) const;
  // As decode(), of a whole text: without the space that a SentencePiece model or WordPiece puts in front of it.
  std::string decode_text(const std::vector<int32_t>& tokens) const;

 private:
  TextLevel level_ = TextLevel::kByte;
  std::vector<uint32_t> code_points_;
  std::shared_ptr<const BytePairs> pairs_;
  std::shared_ptr<const PieceModel> pieces_;
  std::shared_ptr<const WordPieces> words_;
  std::shared_ptr<const ChatSource> chat_;
};

// Describes the first token that has different meanings in two vocabularies: "token 3 is 'e' there and 'q' here"; empty
// if they are equal.
std::string first_difference(const Vocabulary& there, const Vocabulary& here);

// vocabulary_text: the form that checkpoints store: "byte", "char" and the characters, or "bpe" and a tokenizer.json,
// "sentencepiece" and a model in hexadecimal digits, "wordpiece" and a tokenizer.json; "" for null. In front of it may
// be a line with "chat" and the chat template in JSON.
// parse_vocabulary: the inverse; throws ExitCode::kBadData for any other text.
std::string vocabulary_text(const Vocabulary* vocabulary);
std::unique_ptr<Vocabulary> parse_vocabulary(const std::string& text);

// A character in the form of error messages: 'e' (U+0065); control characters as the number only.
std::string character_text(uint32_t code_point);

// Decodes UTF-8 byte by byte. Overlong forms, surrogates and values above U+10FFFF are invalid.
class Utf8Reader {
 public:
  enum class Result { kMore, kCodePoint, kInvalid };
  Result next(uint8_t byte);
  uint32_t code_point() const { return value_; }
  bool between() const { return missing_ == 0; }  // not in the middle of a character
  int length() const { return length_; }          // bytes of the character so far

 private:
  uint32_t value_ = 0, least_ = 0;
  int missing_ = 0, length_ = 0;
};

std::string to_utf8(uint32_t code_point);

}  // namespace lockstep
