// Damage to dataset files that we wrote: each is found (exit code 65), or what is read is what was written. The first
// byte chooses the file, the others are edits (edits.h).
#include <fstream>
#include <iterator>

#include "data/import/import.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
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
  file->rows->visit({0, file->rows->size()}, [&](IndexRange rows, const uint8_t* bytes) {
    out.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(rows.size() * file->rows->row_bytes()));
  });
  for (int32_t label : file->labels) out += str(label, " ");
  for (float number : file->numbers) out += str(number, " ");
  for (int64_t i = 0; file->masks && i < file->header.images[0]; ++i)
    for (uint8_t value : file->mask(i, file->header.images[1], file->header.images[2])) out += str(int{value}, " ");
  return out;
}

struct Original {
  std::string bytes, meaning;
};

void write_masks(const std::string& path) {
  Hdf5File file = Hdf5File::create(path);
  DatasetHeader h;
  h.kind = DataKind::kImages;
  h.images = {20, 4, 3, 1};
  h.target = TargetKind::kMasks;
  h.classes = 3, h.ignored = 255;
  h.mean = {0.5}, h.stddev = {0.25};
  std::vector<uint8_t> pixels, classes;
  for (int i = 0; i < 240; ++i) {
    pixels.push_back(static_cast<uint8_t>(i));
    classes.push_back(i % 7 ? static_cast<uint8_t>(i * i % 3) : 255);
  }
  ChunkWriter images(file, "images", StoredType::kUInt8, h.images, 8);
  images.append(pixels.data(), 20);
  h.hashes = images.finish();
  ChunkWriter masks(file, "masks", StoredType::kUInt8, {20, 4, 3}, 8);
  masks.append(classes.data(), 20);
  h.label_hashes = masks.finish();
  write_dataset_header(file, h);
  file.close();
}

std::vector<Original> originals() {
  const std::string in = fuzz::scratch("in"), labels = fuzz::scratch("labels"), out = fuzz::scratch("original.h5");
  std::vector<Original> all;
  auto add = [&] { all.push_back({content(out), meaning(out)}); };
  std::string text;
  for (int i = 0; i < 200; ++i) text += str(i * i, i % 7 ? ", " : " \xc3\xa4\n");
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
  std::string table = "a,b,price\n";
  for (int i = 0; i < 50; ++i) table += str(i, ",", i % 3, "x,", i * i, "\n");
  fuzz::write_file(in, table);
  import_csv(in, out, {.target = "price"}, {.force = true});
  add();
  write_masks(out);
  add();
  std::string answers;
  for (int i = 0; i < 30; ++i) answers += str("{\"p\": \"", i, "\", \"a\": \"yes ", i * i, "\", \"b\": \"no\"}\n");
  fuzz::write_file(in, answers);
  import_json({in}, out, {.prompt = "p", .chosen = "a", .rejected = "b"}, 0, {.force = true});
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
