// Encoding of any bytes, for each pattern, and one of them with NFC: the text comes back from the ids, and pieces of a
// text, or blocks that are joined, give the ids of the whole. The first byte chooses the pattern and the size of the
// pieces.
#include "data/text/tokenizer/block_encoder.h"
#include "data/text/tokenizer/bpe.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/train_bpe.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

std::unique_ptr<BytePairs> trained(const std::string& pattern, bool normalised = false) {
  const std::string path = fuzz::scratch("text");
  fuzz::write_file(path,
                   "the cat's on the mat, they'll say; 12 123 1234 \xe6\xbc\xa2\xe5\xad\x97 \xe6\xbc\xa2\xe5\xad\x97 "
                   "aaaa aaaa\n\n\n    x    y \xf0\x9f\x98\x80\xf0\x9f\x98\x80 ==== ====\r\n the the cat cat's");
  BpeTraining o;
  o.vocabulary = 300;
  o.pattern = pattern;
  BpeTables tables = train_bpe({path}, o);
  tables.nfc = normalised;
  return std::make_unique<BytePairs>(std::move(tables), pattern);
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  using namespace std::string_view_literals;
  static const std::vector<std::string_view> words = {"<|endoftext|>"sv,
                                                      "<|endof"sv,
                                                      "'s"sv,
                                                      "'LL"sv,
                                                      "the"sv,
                                                      " cat"sv,
                                                      "123"sv,
                                                      "   "sv,
                                                      "\n\n"sv,
                                                      "\r\n"sv,
                                                      "\t"sv,
                                                      "===="sv,
                                                      "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"sv,
                                                      "\xe6\xbc\xa2\xe5\xad\x97"sv,
                                                      "\xf0\x9f\x98\x80"sv,
                                                      "\xc2\xa0"sv,
                                                      "\xe2\x80\xa8"sv,
                                                      "e\xcc\x81"sv,
                                                      "\xcc\xb8"sv,
                                                      "\xe1\x84\x80\xe1\x85\xa1"sv,
                                                      "\xe3\x81\x8b\xe3\x82\x99"sv,
                                                      "\xe1\xa0\x8e"sv,
                                                      "\xc2\xbd"sv,
                                                      "\xff"sv,
                                                      "\xe6\xbc"sv,
                                                      "\0"sv};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::unique_ptr<BytePairs> all[] = {trained("gpt2"), trained("llama3"), trained("qwen2"),
                                                   trained("qwen2", can_normalise())};
  if (size == 0) return 0;
  const BytePairs& pairs = *all[data[0] % 4];
  const size_t step = 1 + data[0] / 4 % 16;
  const bool special = data[0] >= 128;
  const std::string_view bytes = fuzz::text_of(data, size).substr(1);
  fuzz::is_accepted({}, [&] {
    std::string text, pieces;
    ValidText whole(InvalidBytes::kReplace, "input", ""), cut(InvalidBytes::kReplace, "input", "");
    whole.add(bytes, text);
    whole.finish(text);
    std::vector<int32_t> ids, piecewise;
    BpeEncoder encoder(pairs, special);
    encoder.add(text, ids);
    encoder.finish(ids);
    for (size_t at = 0; at < bytes.size(); at += step) {
      std::string piece;
      cut.add(bytes.substr(at, step), piece);
      encoder.add(piece, piecewise);
      pieces += piece;
    }
    std::string end;
    cut.finish(end);
    encoder.add(end, piecewise);
    encoder.finish(piecewise);
    fuzz::expect(pieces + end == text, "pieces give another text");
    fuzz::expect(piecewise == ids, "pieces give other ids");
    std::vector<int32_t> blockwise;
    BlockJoiner joiner(pairs, special);
    for (size_t at = 0, to; at < text.size(); at = to) {
      to = std::min(text.size(), at + step);
      while (to < text.size() && (static_cast<uint8_t>(text[to]) & 0xC0) == 0x80) ++to;
      if (pairs.tables().nfc) to = next_boundary(text, to - 1);
      TextBlock block;
      block.text = text.substr(at, to - at);
      encode_block(encoder, pairs, block);
      joiner.add(block, blockwise);
    }
    joiner.finish(blockwise);
    fuzz::expect(blockwise == ids, "blocks give other ids");
    std::string decoded;
    for (int32_t id : ids) decoded += pairs.bytes_of(id);
    fuzz::expect(decoded == (pairs.tables().nfc ? nfc(text) : text), "another text came back");
  });
  return 0;
}
