// BytePairs: a byte-level BPE tokenizer (Sennrich et al., 2016; bytes as in GPT-2), immutable and shared. BpeEncoder:
// encodes a stream of text with it; used by one thread, borrows it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/tokenizer/bpe_tables.h"
#include "data/text/tokenizer/word_splitter.h"

namespace lockstep {

class BytePairs {
 public:
  // Checks that each id is a token, each byte has one, tokens differ, and each merge makes a token of two; throws
  // ExitCode::kBadData naming `where` and what is wrong.
  BytePairs(BpeTables tables, std::string_view where);
  BytePairs(const BytePairs&) = delete;  // the index refers to the tables
  BytePairs& operator=(const BytePairs&) = delete;
  const BpeTables& tables() const { return tables_; }
  int64_t size() const { return static_cast<int64_t>(tables_.tokens.size()); }
  const std::string& bytes_of(int32_t id) const { return tables_.tokens[static_cast<size_t>(id)]; }
  const AddedToken* added(std::string_view text) const;  // null if there is none
  // Whether text changes before it is encoded: a space comes in front, or special tokens take the white space beside
  // them. prepared(): a whole text, changed so; without `special_tokens` only its beginning is.
  bool prepares(bool special_tokens) const;
  std::string prepared(std::string_view text, bool special_tokens) const;
  const std::string& json() const;  // as a tokenizer.json, made once (data/text/tokenizer/tokenizer_file.h)

 private:
  friend class BpeEncoder;
  // What two neighbours become: of all pairs of a word the one with the lowest rank is merged first.
  struct Merge {
    int32_t rank = kNever, id = -1;
  };
  static constexpr int32_t kNever = INT32_MAX;
  Merge merge_of(int32_t left, int32_t right) const;
  int32_t token_of(std::string_view bytes) const;  // of the model's own; -1 if there is none
  void index_merges(std::string_view where);

  struct Entry {
    uint64_t pair = ~uint64_t{0};
    Merge merge;
  };
  BpeTables tables_;
  std::vector<Pattern> patterns_;
  std::vector<Entry> entries_;                         // a hash table: open addressing, a power of two of entries
  std::unordered_map<std::string_view, int32_t> ids_;  // of the model's own tokens
  int32_t byte_ids_[256];
  mutable std::once_flag json_once_;
  mutable std::string json_;
};

// Ends of words in a text: what follows one is encoded the same way if the text begins there.
struct WordEnd {
  int64_t byte = 0;  // of the text, normalised
  size_t ids = 0;    // appended up to there
};
struct WordEnds {
  int64_t most = INT64_MAX;      // those at bytes up to here are kept
  std::vector<WordEnd> first{};  // in order
  WordEnd last;                  // of all
};

class BpeEncoder {
 public:
  // special_tokens: those that are special are looked for, too, so that "<|endoftext|>" in the text is that token. The
  // other added tokens always are, but for those in `reserved`.
  explicit BpeEncoder(const BytePairs& pairs, bool special_tokens = false, std::span<const std::string> reserved = {});
  // Appends the ids of a piece of text, whole characters of UTF-8, as far as no later piece can change them; finish()
  // appends the rest, and a new text begins. The ids of a text are the same however it is cut.
  // `ends` gets the ends of the words that were encoded.
  void add(std::string_view text, std::vector<int32_t>& ids, WordEnds* ends = nullptr);
  void finish(std::vector<int32_t>& ids);
  std::string rest() const;  // of the text, normalised as far as it is: what is not encoded yet
  void restart();            // forgets the rest: a new text begins

 private:
  struct Symbol {
    int32_t id, before, after;  // of the neighbours in the word: their indices, or -1
  };
  struct Known {
    uint64_t hash = 0;
    uint32_t text = 0, ids = 0;  // where they begin
    uint16_t bytes = 0, count = 0;
  };
  void drain(bool last, std::vector<int32_t>& ids, WordEnds* ends = nullptr);
  const AddedToken* find_added(size_t from, size_t end, size_t& at) const;
  void encode_word(std::string_view word, std::vector<int32_t>& ids);
  void merge_short(std::string_view word, std::vector<int32_t>& ids);
  void merge_long(std::string_view word, std::vector<int32_t>& ids);
  size_t free_entry(uint64_t hash) const;
  void remember(uint64_t hash, std::string_view word, std::span<const int32_t> ids);

  const BytePairs& pairs_;
  WordSplitter splitter_;
  std::unordered_map<std::string_view, const AddedToken*> added_;  // those that are looked for
  std::vector<size_t> lengths_;                                    // of them, descending
  bool begins_added_[256] = {};
  std::string held_;          // with nfc: not yet normalised
  std::string text_;          // not yet encoded, and
  size_t begin_ = 0;          // where that begins
  int64_t before_ = 0;        // bytes of the text that were before text_
  size_t searched_ = 0;       // no added token begins before this byte
  std::vector<Known> known_;  // words that were encoded before: a hash table
  size_t known_count_ = 0;
  std::string known_text_;
  std::vector<int32_t> known_ids_;
};

// Describes the first difference of two tokenizers: a token, a merge, a pattern or an added token; empty if equal.
std::string first_difference(const BytePairs& there, const BytePairs& here);

}  // namespace lockstep
