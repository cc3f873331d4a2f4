// Damage to dataset files that we wrote: each is found (exit code 65), or what is read is what was written. The first
// byte chooses the file, the others are edits (edits.h).
#include <fstream>
#include <iterator>

#include "data/dataset_file.h"
#include "data/import.h"
#include "tests/fuzz/edits.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

std::string content(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

// Everything that the file says, but for its size: bytes that are in no use may follow.
std::string meaning(const std::string& path) {
  DatasetReport report = inspect_dataset(path);
  report.file_bytes = 0;
  std::string out = to_text(report);
  const auto file = open_dataset_file(path, 1 << 20);
  file->rows->visit({0, file->rows->size()}, [&](Range rows, const uint8_t* bytes) {
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(rows.size() * file->rows->row_bytes()));
  });
  for (int32_t label : file->labels) out += cat(label, " ");
  return out;
}

struct Original {
  std::string bytes, meaning;
};

std::vector<Original> originals() {
  const std::string in = fuzz::scratch("in"), labels = fuzz::scratch("labels"), out = fuzz::scratch("original.h5");
  std::vector<Original> all;
  auto add = [&] { all.push_back({content(out), meaning(out)}); };
  std::string text;
  for (int i = 0; i < 200; ++i) text += cat(i * i, i % 7 ? ", " : " \xc3\xa4\n");
  fuzz::write_file(in, text);
  import_text({in}, out, TextLevel::kChar, {.force = true});
  add();
  import_text({in}, out, TextLevel::kByte, {.force = true});
  add();
  using namespace std::string_view_literals;
  std::string images(" \0\0\x08\x04\0\0\0\x14\0\0\0\x04\0\0\0\x03\0\0\0\x02"sv.substr(1));
  std::string classes("\0\0\x08\x01\0\0\0\x14"sv);
  for (int i = 0; i < 480; ++i) images += static_cast<char>(i * i * 37);
  for (int i = 0; i < 20; ++i) classes += static_cast<char>(i % 5);
  fuzz::write_file(in, images);
  fuzz::write_file(labels, classes);
  import_idx(in, labels, out, 0, {.force = true});
  add();
  return all;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  return fuzz::mutate_edits(data, size, capacity, seed);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Original> all = originals();
  static const std::string path = fuzz::scratch("edited.h5");
  if (size == 0) return 0;
  const Original& original = all[data[0] % all.size()];
  fuzz::write_file(path, fuzz::edited(original.bytes, fuzz::text_of(data + 1, size - 1)));
  fuzz::is_accepted({ExitCode::kBadData},
                    [&] { fuzz::expect(meaning(path) == original.meaning, "the file reads as another dataset"); });
  return 0;
}
