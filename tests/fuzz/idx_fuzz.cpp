// IDX files: the input holds images, the mark below, and labels; without the mark the labels are 0, 1, 2, ...
#include <filesystem>

#include "data/import/import.h"
#include "data/samples/inspect.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

constexpr std::string_view kMark = "--labels--";
using namespace std::string_view_literals;
constexpr std::string_view kLabelFile = "\0\0\x08\x01\0\0\0\x03\0\1\2"sv;

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {kMark,
                                                      "\0\0\x08\x01\0\0\0\x01"sv,
                                                      "\0\0\x08\x03\0\0\0\x01\0\0\0\x01\0\0\0\x01"sv,
                                                      "\0\0\x08\x04\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0\x01"sv,
                                                      "\0\0\x08\x03\xff\xff\xff\xff\0\1\0\0\0\1\0\0"sv,
                                                      "\0\1\0\0"sv,
                                                      "\x1f\x8b\x08\0\0\0\0\0\0\x03"sv};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string images = fuzz::scratch("images"), labels = fuzz::scratch("labels"),
                           output = fuzz::scratch("out.h5");
  const std::string_view all = fuzz::text_of(data, size);
  const size_t mark = std::min(all.find(kMark), all.size());
  fuzz::write_file(images, all.substr(0, mark));
  fuzz::write_file(labels, mark < all.size() ? all.substr(mark + kMark.size()) : kLabelFile);
  const int64_t classes = size % 4 == 3 ? 7 : 0;
  const bool accepted =
      fuzz::is_accepted({ExitCode::kBadData}, [&] { import_idx(images, labels, output, classes, {.force = true}); });
  if (!accepted) return 0;
  DatasetReport report;
  fuzz::is_accepted({}, [&] { report = inspect_dataset(output); });
  int64_t labelled = 0;
  for (int64_t n : report.per_class) labelled += n;
  fuzz::expect(report.kind == DataKind::kImages && report.count > 0 && labelled == report.count, "images are missing");
  std::filesystem::remove(output);
  return 0;
}
