// What a byte-level BPE tokenizer consists of, and the alphabet in which its files write bytes. Plain values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lockstep {

// A token beside those of byte pairs. Where it is looked for, it is found in the text before the text is split.
struct AddedToken {
  int32_t id = 0;
  std::string text;
  bool special = true;                  // such as <|endoftext|>; looked for only on request, the others always
  bool in_vocabulary = false;           // the file lists it among the model's tokens, too
  bool lstrip = false, rstrip = false;  // white space before or behind it is part of it
  bool normalized = false;              // of WordPiece: looked for in the text as it is normalised
  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

// What a tokenizer of an encoder puts around a record: [CLS] and [SEP], or <s> and </s>.
struct Surround {
  std::vector<int32_t> before = {}, after = {};
  bool empty() const { return before.empty() && after.empty(); }
  friend bool operator==(const Surround&, const Surround&) = default;
};

struct BpeTables {
  std::vector<std::string> tokens;                  // the bytes of each id; of an added token its text
  std::vector<std::pair<int32_t, int32_t>> merges;  // pairs of ids, the first to be merged first
  std::vector<AddedToken> added;                    // by id
  std::vector<std::string> patterns;  // each splits the words of the one before it (data/text/tokenizer/pattern.h)
  bool ignore_merges = false;         // a word that is a token is that token, whatever merging gives
  bool prefix_space = false;          // a text, or what follows an added token, gets a space in front if it has none
  bool nfc = false;                   // text is brought into normal form C first (data/text/tokenizer/normalizer.h)
  Surround around = {};               // as RoBERTa has it; empty where a text gets at most a beginning or an end
  friend bool operator==(const BpeTables&, const BpeTables&) = default;
};

constexpr int64_t kMostBpeTokens = int64_t{1} << 21;
constexpr size_t kLargestTokenizer = 24 << 20;  // bytes of its tokenizer.json, which each checkpoint holds

// The alphabet of GPT-2: bytes 33 to 126, 161 to 172 and 174 to 255 are written as the character of that number, the
// others in their order as U+0100 and the ones after it. from_alphabet: nothing where a character stands for no byte.
std::string to_alphabet(std::string_view bytes);
std::optional<std::string> from_alphabet(std::string_view text);
uint32_t alphabet_character(uint8_t byte);

// The first token that differs between two lists; empty where they are the same.
std::string first_token_difference(const std::vector<std::string>& there, const std::vector<std::string>& here);
std::string quoted_token(std::string_view text);  // for messages: 'in quotes', control characters escaped

}  // namespace lockstep
