// tokenizer.json: what is accepted encodes and decodes a text, and reads back as it is written.
#include "data/text/tokenizer/tokenizer_file.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words =
      fuzz::with_json_words({"255",
                             "256",
                             "257",
                             "2097152",
                             "9223372036854775807",
                             "\\u0120",
                             "\\ud800",
                             "\\u0000",
                             "\"a b\"",
                             "[\"a\",\"b\"]",
                             "\"ab\":256",
                             "{\"id\":258,\"content\":\"<e>\",\"special\":true}",
                             "\"ignore_merges\":true,",
                             "\"normalizer\":",
                             "\"pre_tokenizer\":",
                             "{\"type\":\"ByteLevel\",\"add_prefix_space\":false}",
                             "\"use_regex\":false",
                             "\"Regex\":\"\\\\p{L}+\"",
                             "\\\\s",
                             "\\\\p{N}",
                             "(?!\\\\S)",
                             "(?i:",
                             "{1,3}",
                             "[^",
                             "|",
                             "+",
                             "*"});
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view json = fuzz::text_of(data, size);
  std::shared_ptr<const BytePairs> pairs;
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { pairs = parse_tokenizer_json(json, "input"); })) return 0;
  const std::string text = "It's a test: abc \xe6\xbc\xa2 12345\n\n  <e> aaaaaaaaaaaaaaaaaaaa bbbb";
  std::vector<int32_t> ids;
  // A pattern may take too many steps.
  const bool encoded = fuzz::is_accepted({ExitCode::kBadData}, [&] {
    BpeEncoder encoder(*pairs, true);
    encoder.add(text, ids);
    encoder.finish(ids);
  });
  std::string decoded;
  for (int32_t id : ids) {
    fuzz::expect(id >= 0 && id < pairs->size(), "an id that is none: ", id);
    decoded += pairs->bytes_of(id);
  }
  fuzz::expect(!encoded || decoded == text, "another text came back: ", decoded);
  fuzz::is_accepted({}, [&] {
    const auto again = parse_tokenizer_json(tokenizer_json(pairs->tables()), "written");
    fuzz::expect(again->tables() == pairs->tables(), "another tokenizer was written");
  });
  return 0;
}
