// Unigram: cuts a normalised text into the pieces of a unigram model (Kudo, 2018) whose scores have the largest sum.
// Immutable; callable from any thread.
//
// Many texts have several such cuts, because a sum does not depend on the order of its terms: which one is found
// depends on how sums are rounded and on what is compared first. This is done as SentencePiece 0.2.3 does it, so that
// the ids are those of that version whichever one the build has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/text/tokenizer/pieces.h"

namespace lockstep {

class Unigram {
 public:
  explicit Unigram(const std::vector<PieceModel::Piece>& pieces);
  struct Cut {
    int32_t id;    // of a piece; the unknown piece stands for one character
    uint32_t end;  // bytes of the text: where the piece ends, and the next one begins
  };
  // Of valid UTF-8 in normal form, with spaces as U+2581.
  std::vector<Cut> cut(std::string_view text) const;

 private:
  struct Node {
    int32_t piece = -1;  // that ends here; -1: none
    float score = 0;
  };
  // A tree of prefixes: from a node by a byte to another one.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<Node> nodes_;
  size_t longest_ = 4;  // bytes of a piece, or of a character
  int32_t unknown_ = 0;
  float unknown_score_ = 0;
};

}  // namespace lockstep
