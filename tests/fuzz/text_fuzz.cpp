// Text import, by characters or, for inputs of odd size, by bytes; a byte 0x1C divides the input into two files. What
// was imported reads back as it was.
#include <filesystem>

#include "data/import/import.h"
#include "data/samples/dataset_file.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

int64_t id_at(const uint8_t* bytes, int64_t width, int64_t i) {
  int64_t id = 0;
  for (int64_t b = 0; b < width; ++b) id |= int64_t{bytes[i * width + b]} << (8 * b);
  return id;
}

std::string text_in(const std::string& path) {
  const auto file = open_dataset_file(path, 1 << 20);
  const Vocabulary& vocabulary = *file->header.vocabulary;
  std::vector<int32_t> ids;
  file->rows->visit({0, file->rows->size()}, [&](IndexRange rows, const uint8_t* bytes) {
    for (int64_t i = 0; i < rows.size(); ++i)
      ids.push_back(static_cast<int32_t>(id_at(bytes, file->rows->row_bytes(), i)));
  });
  return vocabulary.decode(ids);
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  using namespace std::string_view_literals;
  static const std::vector<std::string_view> words = {"\x1c"sv,
                                                      "\0"sv,
                                                      "\xc3\xa4"sv,
                                                      "\xe2\x82\xac"sv,
                                                      "\xf0\x9f\x98\x80"sv,
                                                      "\xed\xa0\x80"sv,
                                                      "\xc0\x80"sv,
                                                      "\xf4\x8f\xbf\xbf"sv,
                                                      "\xf4\x90\x80\x80"sv,
                                                      "\xef\xbb\xbf"sv,
                                                      "\xff"sv,
                                                      "\xe2\x82"sv,
                                                      "\xef\xbf\xbf"sv,
                                                      "\r\n"sv};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string first = fuzz::scratch("first"), second = fuzz::scratch("second"),
                           output = fuzz::scratch("out.h5");
  const std::string_view all = fuzz::text_of(data, size);
  const size_t mark = std::min(all.find('\x1c'), all.size());
  std::vector<std::string> inputs = {first};
  std::string whole(all.substr(0, mark));
  fuzz::write_file(first, whole);
  if (mark < all.size()) {
    inputs.push_back(second);
    fuzz::write_file(second, all.substr(mark + 1));
    whole += all.substr(mark + 1);
  }
  const TextLevel level = size % 2 == 1 ? TextLevel::kByte : TextLevel::kChar;
  const bool accepted =
      fuzz::is_accepted({ExitCode::kBadData}, [&] { import_text(inputs, output, level, {.force = true}); });
  fuzz::expect(accepted || level == TextLevel::kChar || whole.empty(), "bytes were refused");
  if (!accepted) return 0;
  fuzz::is_accepted({}, [&] { fuzz::expect(text_in(output) == whole, "another text came back"); });
  std::filesystem::remove(output);
  return 0;
}
