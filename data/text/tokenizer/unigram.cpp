#include "data/text/tokenizer/unigram.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"

namespace lockstep {
namespace {

constexpr float kUnknownPenalty = 10;
constexpr float kLargestSum = 1e5;  // beyond it sums begin anew from 0, so that they stay precise in long texts

// The bytes of the character that begins with this one.
size_t character_bytes(char first) {
  const auto byte = static_cast<uint8_t>(first);
  return byte < 0xC0 ? 1 : byte < 0xE0 ? 2 : byte < 0xF0 ? 3 : 4;
}

uint64_t edge(uint32_t node, char byte) { return uint64_t{node} << 8 | static_cast<uint8_t>(byte); }

}  // namespace

Unigram::Unigram(const std::vector<PieceModel::Piece>& pieces) : nodes_(1) {
  float least = std::numeric_limits<float>::max();
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto& [text, type, score] = pieces[i];
    const bool normal = type == PieceModel::Type::kNormal;
    if (type == PieceModel::Type::kUnknown) unknown_ = static_cast<int32_t>(i);
    if (normal) least = std::min(least, score);
    if (!normal && type != PieceModel::Type::kUserDefined) continue;
    longest_ = std::max(longest_, text.size());
    uint32_t at = 0;
    for (char byte : text) {
      const auto [found, is_new] = edges_.emplace(edge(at, byte), static_cast<uint32_t>(nodes_.size()));
      if (is_new) nodes_.emplace_back();
      at = found->second;
    }
    // A user-defined piece has more than any other cut of its text.
    nodes_[at] = {static_cast<int32_t>(i),
                  normal ? score : static_cast<float>(0.1 * static_cast<double>(text.size() - 1))};
  }
  unknown_score_ = least - kUnknownPenalty;
}

std::vector<Unigram::Cut> Unigram::cut(std::string_view text) const {
  require(text.size() < std::numeric_limits<uint32_t>::max(), ExitCode::kBadData, "a text of more than 4 GiB");
  struct Best {
    int32_t id = -1;  // of the last piece of the best cut that ends here; -1: none does yet
    uint32_t begin = 0;
    float score = 0;
  };
  std::vector<Best> best(text.size() + 1);
  const auto offer = [&](size_t begin, size_t end, int32_t id, float score) {
    const float sum = best[begin].score + score;
    if (best[end].id < 0 || sum > best[end].score) best[end] = {id, static_cast<uint32_t>(begin), sum};
  };
  for (size_t begin = 0; begin < text.size();) {
    const size_t next = std::min(text.size(), begin + character_bytes(text[begin]));
    if (const float sum = best[begin].score; std::abs(sum) > kLargestSum)
      for (size_t end = begin; end <= std::min(text.size(), begin + longest_); ++end) best[end].score -= sum;
    bool known = false;
    uint32_t node = 0;
    for (size_t end = begin; end < text.size();) {
      const auto found = edges_.find(edge(node, text[end++]));
      if (found == edges_.end()) break;
      node = found->second;
      if (nodes_[node].piece < 0) continue;
      offer(begin, end, nodes_[node].piece, nodes_[node].score);
      known = known || end == next;
    }
    if (!known) offer(begin, next, unknown_, unknown_score_);
    begin = next;
  }
  std::vector<Cut> out;
  for (size_t end = text.size(); end > 0; end = best[end].begin)
    out.push_back({best[end].id, static_cast<uint32_t>(end)});
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace lockstep
