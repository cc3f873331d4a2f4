// RecordEncoder: turns the text of a record into token ids, and marks those that are targets. Used by one thread;
// borrows its vocabulary.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizer/bpe.h"
#include "data/text/vocabulary.h"

namespace lockstep {

// A part of a record.
struct TextPart {
  std::string text;      // UTF-8
  bool target = false;   // whether the loss is on its tokens
  bool special = false;  // `text` is an added token of the tokenizer; elsewhere special tokens in a text are text
};

class RecordEncoder {
 public:
  // reserved: tokens that parts with `special` alone become. Other added tokens that the tokenizer does not call
  // special are looked for in every text.
  explicit RecordEncoder(const Vocabulary& vocabulary, std::vector<std::string> reserved = {});
  // Appends ids and marks (1: target). Parts between special tokens are encoded as one text, so that the ids are those
  // of the whole; a token that holds a byte of a target is one. Throws ExitCode::kBadData for a character that is not
  // in the vocabulary, and for a text that this tokenizer can only encode with a reserved token. Where the tokenizer
  // puts tokens around a record, [CLS] and [SEP] of WordPiece, they are added.
  void encode(const std::vector<TextPart>& parts, std::vector<int32_t>& ids, std::vector<uint8_t>& targets);
  // Throws ExitCode::kUsage naming `what` where the tokenizer has no such token. Without byte pairs all text is spelt.
  void need_token(const std::string& text, std::string_view what) const;

 private:
  void encode_text(const std::string& text, const std::vector<uint8_t>& marks, std::vector<int32_t>& ids,
                   std::vector<uint8_t>& targets);
  void encode_normal(const std::string& text, const std::vector<uint8_t>& marks, std::vector<int32_t>& ids,
                     std::vector<uint8_t>& targets);
  void restart_pairs() { pairs_.emplace(*vocabulary_.pairs(), false, reserved_); }
  void refuse_reserved(std::span<const int32_t> ids) const;
  size_t bytes_of(int32_t id) const;
  bool spells_all() const;  // there are no special tokens

  const Vocabulary& vocabulary_;
  const std::vector<std::string> reserved_;
  std::vector<int32_t> reserved_ids_;
  std::optional<BpeEncoder> pairs_;
};

}  // namespace lockstep
