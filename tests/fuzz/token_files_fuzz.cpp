// Files of token ids: llm.c's where the first byte of the input is even, else an index of Megatron-LM, the mark below,
// and the tokens that it indexes. What was imported is whole and no larger than what there was.
#include <filesystem>

#include "data/import/import.h"
#include "data/samples/inspect.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {
constexpr std::string_view kMark = "--tokens--";
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  using namespace std::string_view_literals;
  static const std::vector<std::string_view> words = {kMark,
                                                      "MMIDIDX\0\0\x01\0\0\0\0\0\0\0"sv,
                                                      "\x88\xf7\x34\x01\x01\0\0\0"sv,
                                                      "\xa1\xf8\x34\x01\x07\0\0\0"sv,
                                                      "\x01\0\0\0\0\0\0\0"sv,
                                                      "\xff\xff\xff\xff\xff\xff\xff\x7f"sv,
                                                      "\0\0\0\x80"sv,
                                                      "\xff\xff\xff\xff"sv};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string first = fuzz::scratch("t.bin"), index = fuzz::scratch("t.idx"),
                           output = fuzz::scratch("out.h5");
  if (size == 0) return 0;
  const int choice = data[0];
  const std::string_view all = fuzz::text_of(data + 1, size - 1);
  const size_t mark = std::min(all.find(kMark), all.size());
  const std::string_view ids = choice % 2 == 0 ? all : mark < all.size() ? all.substr(mark + kMark.size()) : "";
  fuzz::write_file(first, ids);
  TokenFileOptions options;
  if (choice / 2 % 2 == 1) options.vocabulary_size = 300;
  if (choice % 2 == 0 && choice / 4 % 2 == 1) options.document_token = 7;
  const bool accepted = fuzz::is_accepted({ExitCode::kBadData}, [&] {
    if (choice % 2 == 0) return import_llmc({first}, output, options, {.force = true});
    fuzz::write_file(index, all.substr(0, mark));
    import_megatron({first}, output, options, {.force = true});
  });
  if (!accepted) return 0;
  fuzz::is_accepted({}, [&] {
    const DatasetReport report = inspect_dataset(output);
    fuzz::expect(report.count > 0 && report.count <= static_cast<int64_t>(ids.size()), "tokens from nowhere");
  });
  std::filesystem::remove(output);
  return 0;
}
