#include "data/text/tokenizer/block_encoder.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/text/tokenizer/normalizer.h"

namespace lockstep {
namespace {

constexpr int64_t kCommonEnd = 16 << 10;  // bytes of a block within which a common end of words is looked for
constexpr size_t kFirstPiece = 256;       // bytes of it that are encoded a second time before the first look

}  // namespace

void encode_block(BpeEncoder& encoder, const BytePairs& pairs, TextBlock& block) {
  block.ends.most = kCommonEnd;
  block.ends.first = {{0, 0}};
  encoder.restart();
  try {
    if (pairs.tables().nfc) block.text = nfc(block.text);
    encoder.add(block.text, block.ids, &block.ends);
  } catch (const Error&) {
    // It may be for the wrong beginning. The joiner encodes the block, and fails where that is right.
    block.ids.clear();
    block.ends.first.clear();
  }
}

void BlockJoiner::encode(std::string_view text, std::vector<int32_t>& ids, WordEnds* ends) {
  encoder_.add(text, ids, ends);
  taken_ += static_cast<int64_t>(text.size());
}

void BlockJoiner::add(TextBlock& block, std::vector<int32_t>& ids) {
  const std::string_view text = block.text;
  const std::vector<WordEnd>& own = block.ends.first;
  const int64_t begin = taken_;  // of the block in the encoder's text
  const WordEnd* common = begin == 0 && !own.empty() ? &own[0] : nullptr;
  size_t piece = own.empty() ? text.size() : kFirstPiece;
  const size_t before = ids.size();
  for (size_t at = 0, end; !common && at < text.size(); at = end, piece *= 16) {
    end = std::min(text.size(), at + piece);
    if (static_cast<int64_t>(at) > kCommonEnd) end = text.size();
    while (end < text.size() && (static_cast<uint8_t>(text[end]) & 0xC0) == 0x80) ++end;
    WordEnds ends;
    encode(text.substr(at, end - at), ids, &ends);
    for (const WordEnd& e : ends.first) {
      const auto found = std::lower_bound(own.begin(), own.end(), e.byte - begin,
                                          [](const WordEnd& w, int64_t b) { return w.byte < b; });
      if (found == own.end() || found->byte != e.byte - begin) continue;
      common = &*found;
      ids.resize(e.ids);
      break;
    }
  }
  check(ids.size() >= before, "ids of an earlier block were dropped");
  if (!common) return;
  ids.insert(ids.end(), block.ids.begin() + static_cast<std::ptrdiff_t>(common->ids), block.ids.end());
  encoder_.restart();
  taken_ = 0;
  encode(text.substr(static_cast<size_t>(block.ends.last.byte)), ids, nullptr);
}

void BlockJoiner::finish(std::vector<int32_t>& ids) {
  encoder_.finish(ids);
  taken_ = 0;
}

}  // namespace lockstep
