// Encodes a long text by blocks, which several threads take, with the ids of the whole text. A block is encoded as if
// its beginning began a word; where that is wrong, the words of both readings end at a common place soon, from which on
// they are the same, since a word depends on no text before it. Until there the joiner encodes the text anew.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/text/tokenizer/bpe.h"

namespace lockstep {

struct TextBlock {
  std::string text;          // whole characters of valid UTF-8; with nfc, ends where a normal form can be cut
  std::vector<int32_t> ids;  // of its words, those aside that text behind the block could change
  WordEnds ends;
};

// Fills in all but the text, which it normalises. Any encoder of the tokenizer will do; used by one thread at a time.
void encode_block(BpeEncoder& encoder, const BytePairs& pairs, TextBlock& block);

// Takes the blocks of a text in order. Used by one thread; borrows the tokenizer.
class BlockJoiner {
 public:
  BlockJoiner(const BytePairs& pairs, bool special_tokens) : encoder_(pairs, special_tokens) {}
  // Appends the ids of the text so far that no text behind it can change. Throws what BpeEncoder does.
  void add(TextBlock& block, std::vector<int32_t>& ids);
  void finish(std::vector<int32_t>& ids);  // appends the others; a new text begins
  // The text whose ids were not appended yet; and a joiner that begins with it, as the one that said it would go on.
  std::string rest() const { return encoder_.rest(); }
  void begin_with(const std::string& rest, std::vector<int32_t>& ids) { encode(rest, ids, nullptr); }

 private:
  void encode(std::string_view text, std::vector<int32_t>& ids, WordEnds* ends);

  BpeEncoder encoder_;
  int64_t taken_ = 0;  // bytes of the text that encoder_ was given; 0: it has none
};

}  // namespace lockstep
