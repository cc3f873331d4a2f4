// WordPiece in a tokenizer.json or a vocab.txt: what is accepted encodes a text, with places in it in order, and reads
// back as it is written. The first byte says which of the two the rest is.
#include "data/text/tokenizer/word_piece_file.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words =
      fuzz::with_json_words({"5",
                             "65541",
                             "9223372036854775807",
                             "\\u0130",
                             "\\ud800",
                             "\\u0000",
                             "\n",
                             "\r\n",
                             "##",
                             "##a\n",
                             "\"##a\":5,",
                             "[UNK]",
                             "[MASK]",
                             "{\"id\":5,\"content\":\"e f\",\"special\":false}",
                             "\"normalized\":true",
                             "\"normalizer\":",
                             "\"lowercase\":false",
                             "\"strip_accents\":null",
                             "\"max_input_chars_per_word\":2",
                             "\"Sequence\"",
                             "\"normalizers\":[]",
                             "{\"type\":\"BertPreTokenizer\"}",
                             "{\"type\":\"BertProcessing\",\"sep\":[\"[SEP]\",2],",
                             "\"ids\":[1]"});
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input = fuzz::text_of(data, size);
  if (input.empty()) return 0;
  const std::string_view file = input.substr(1);
  std::shared_ptr<const WordPieces> words;
  const bool accepted = fuzz::is_accepted({ExitCode::kBadData}, [&] {
    if (input[0] != 'v') return words = parse_word_piece_json(file, "input"), void();
    // tokenizer_config.json, then the list.
    const size_t end = file.find('\0');
    words = end == file.npos ? parse_vocab_txt(file, "", "input")
                             : parse_vocab_txt(file.substr(end + 1), file.substr(0, end), "input");
  });
  if (!accepted) return 0;
  const std::string text = "abc \xc3\x89\x65\xcc\x81 \xe6\xbc\xa2\xc4\xb0 [MASK] e F,a\x01\n ";
  for (const bool special : {false, true}) {
    size_t begin = 0;
    std::vector<int32_t> ids;
    for (const WordPieces::Token& t : words->encode(text, special)) {
      fuzz::expect(t.id >= 0 && t.id < words->size(), "an id that is none: ", t.id);
      fuzz::expect(t.begin < t.end && t.end <= text.size() && t.begin >= begin, "a token at [", t.begin, ", ", t.end,
                   ")");
      begin = t.begin;
      ids.push_back(t.id);
    }
    words->decode(ids);
  }
  fuzz::is_accepted({}, [&] {
    const auto again = parse_word_piece_json(words->json(), "written");
    fuzz::expect(again->tables() == words->tables(), "another tokenizer was written");
  });
  return 0;
}
