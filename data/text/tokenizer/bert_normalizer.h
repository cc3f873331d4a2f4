// BERT's normalizer: text as its tokenizers see it, each character with its place in the text before. Plain values and
// functions; callable from any thread.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace lockstep {

// In the order in which they are applied.
struct BertRules {
  bool clean = false;          // controls, U+0000 and U+FFFD are left out, white space becomes spaces
  bool ideographs = false;     // a space on both sides of each Chinese character
  bool strip_accents = false;  // canonical decomposition, without the marks
  bool lowercase = false;
  friend bool operator==(const BertRules&, const BertRules&) = default;
};

struct PlacedCharacter {
  uint32_t code_point;
  uint32_t begin, end;  // bytes of the text that it was made of
};

// Appends the characters of `text`, which is valid UTF-8 and begins at byte `at` of the places. Needs can_normalise().
void bert_normalise(std::string_view text, const BertRules& rules, size_t at, std::vector<PlacedCharacter>& out);

}  // namespace lockstep
