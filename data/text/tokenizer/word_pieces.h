// WordPieces: a WordPiece tokenizer as BERT has it (Wu et al., 2016; Devlin et al., 2019): text is normalised, split at
// white space and punctuation, and each word cut into the longest tokens from its beginning on. Immutable and shared;
// callable from any thread.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizer/bert_normalizer.h"
#include "data/text/tokenizer/bpe_tables.h"
#include "data/text/tokenizer/longest_token.h"
#include "data/text/tokenizer/pieces.h"

namespace lockstep {

struct WordPieceTables {
  std::vector<std::string> tokens;  // of each id; within a word they begin with `prefix`
  std::vector<AddedToken> added;    // by id
  std::string unknown = "[UNK]";    // the token of a word that no tokens make
  std::string prefix = "##";
  int64_t longest_word = 100;  // code points; longer words are unknown
  BertRules rules;
  Surround around = {};
  bool cleanup = true;  // decoding leaves out the space before . ? ! , and short forms such as 's
  friend bool operator==(const WordPieceTables&, const WordPieceTables&) = default;
};

class WordPieces {
 public:
  using Token = PieceModel::Token;
  // Checks that tokens differ, the unknown token is one, and ids are in range; throws ExitCode::kBadData naming `where`
  // and what is wrong, also where the build has no utf8proc.
  WordPieces(WordPieceTables tables, std::string_view where);
  WordPieces(const WordPieces&) = delete;  // the index refers to the tables
  WordPieces& operator=(const WordPieces&) = delete;
  const WordPieceTables& tables() const { return tables_; }
  int64_t size() const { return static_cast<int64_t>(tables_.tokens.size()); }
  // Of valid UTF-8. With `special_tokens` special tokens that the text spells out are those; other added tokens always
  // are. Nothing is put around it.
  std::vector<Token> encode(std::string_view text, bool special_tokens = false) const;
  // A whole text: tokens with spaces between them, but for those within a word.
  std::string decode(const std::vector<int32_t>& ids) const;
  std::string text_of(int32_t id) const;         // of a token within a text, with the space in front of a word
  int32_t special(std::string_view text) const;  // the added token; -1 if there is none
  bool is_special(int32_t id) const { return special_[static_cast<size_t>(id)]; }
  int32_t mask() const { return mask_; }  // the id of the special token [MASK]; -1 if there is none
  bool needs_whole_text() const { return needs_whole_text_; }  // an added token has white space
  const std::string& json() const;  // as a tokenizer.json on one line, made once: equal tokenizers give equal texts

 private:
  void index(std::string_view where);
  void encode_segment(std::string_view text, size_t at, bool special_tokens, std::vector<Token>& out) const;
  void encode_characters(const std::vector<PlacedCharacter>& text, size_t from, size_t to,
                         std::vector<Token>& out) const;
  void encode_word(const PlacedCharacter* word, size_t count, std::vector<Token>& out) const;
  const AddedToken* find_added(std::string_view text, size_t& at, bool special_tokens, bool normalized) const;

  WordPieceTables tables_;
  LongestToken first_, within_;  // of a word; those within it without the prefix
  int32_t unknown_ = -1, mask_ = -1;
  std::vector<bool> special_;  // of each id
  struct Sought {
    std::string text;  // normalised, where the text is
    const AddedToken* token;
  };
  std::vector<Sought> sought_;  // the longest first
  bool begins_added_[256] = {}, any_normalized_ = false, needs_whole_text_ = false;
  mutable std::once_flag json_once_;
  mutable std::string json_;
};

// Describes the first difference of two tokenizers; empty if equal.
std::string first_difference(const WordPieces& there, const WordPieces& here);

}  // namespace lockstep
