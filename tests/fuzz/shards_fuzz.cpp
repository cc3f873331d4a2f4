// WebDataset's shards: what is imported has an image for each sample, or the archive is refused. Headers of members
// get the checksums that belong to them, so that mutations reach what lies behind these.
#include <algorithm>
#include <cstring>
#include <filesystem>

#include "data/import/import.h"
#include "data/samples/inspect.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace std::literals;

namespace {

constexpr size_t kHeader = 512, kSum = 148;

void mend_checksums(uint8_t* data, size_t size) {
  for (size_t at = 0; at + kHeader <= size; at += kHeader) {
    uint8_t* header = data + at;
    if (std::memcmp(header + 257, "ustar", 5) != 0) continue;
    std::memset(header + kSum, ' ', 8);
    unsigned sum = 0;
    for (size_t i = 0; i < kHeader; ++i) sum += header[i];
    for (size_t i = 6; i-- > 0; sum /= 8) header[kSum + i] = static_cast<uint8_t>('0' + sum % 8);
    header[kSum + 6] = 0;
  }
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"ustar\00000"sv,
                                                      "ustar  \0"sv,
                                                      "00000000000"sv,
                                                      "77777777777"sv,
                                                      "\x80\0\0\0\0\0\0\1"sv,
                                                      "\xff\xff\xff\xff"sv,
                                                      ".png"sv,
                                                      ".cls"sv,
                                                      ".json"sv,
                                                      "{\"y\":1}"sv,
                                                      "././@LongLink"sv,
                                                      "path="sv,
                                                      "size="sv,
                                                      "GNU.sparse.map="sv,
                                                      "GNU.sparse.size="sv,
                                                      "/../"sv,
                                                      "L"sv,
                                                      "x"sv,
                                                      "g"sv,
                                                      "S"sv,
                                                      "2"sv};
  const size_t made = fuzz::mutate_with_words(data, size, capacity, seed, words);
  if (seed % 8 != 0) mend_checksums(data, made);
  return made;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string shard = fuzz::scratch("shard.tar"), output = fuzz::scratch("out.h5");
  fuzz::write_file(shard, fuzz::text_of(data, size));
  const ShardOptions how{.label = size % 2 ? "y" : "", .skip_bad = size % 3 ? 0 : 2};
  if (!fuzz::is_accepted({ExitCode::kBadData},
                         [&] { import_shards({shard}, output, how, {.force = true, .threads = 1}); }))
    return 0;
  DatasetReport report;
  fuzz::is_accepted({}, [&] { report = inspect_dataset(output); });
  int64_t labelled = 0;
  for (int64_t n : report.per_class) labelled += n;
  fuzz::expect(report.kind == DataKind::kImages && report.count > 0 && labelled == report.count, "images are missing");
  std::filesystem::remove(output);
  return 0;
}
