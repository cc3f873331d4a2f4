// Archives of NumPy (.npz): the input is one, read as weights, and as samples x and labels y. The kept seeds are what
// numpy.savez and numpy.savez_compressed write.
#include <cstring>
#include <filesystem>

#include "core/io/safetensors.h"
#include "data/import/import.h"
#include "data/samples/inspect.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace std::literals;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {
      "PK\1\2"sv,   "PK\3\4"sv,     "PK\5\6"sv, "PK\6\6"sv,        "PK\6\7"sv,  "\xff\xff\xff\xff"sv,
      "\xff\xff"sv, "\1\0\x10\0"sv, "x.npy"sv,  "\x93NUMPY\1\0"sv, "'<f4'"sv,   "'<f8'"sv,
      "'|u1'"sv,    "'<i8'"sv,      "True"sv,   "(2, "sv,          "\0\0\0\0"sv};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string path = fuzz::scratch("x.npz"), output = fuzz::scratch("out.h5");
  fuzz::write_file(path, fuzz::text_of(data, size));
  if (size < 4 || std::memcmp(data, "PK", 2) != 0) return 0;  // another format
  fuzz::is_accepted({ExitCode::kBadData}, [&] {
    const WeightFiles files = WeightFiles::open(path);
    for (const StoredWeight& w : files.weights()) {
      fuzz::expect(files.find(w.name) == &w, "an array is not found by its name");
      const int64_t n = w.shape.numel();
      fuzz::expect(n >= 0 && n <= 1100 * static_cast<int64_t>(size), "more elements than the file can hold");
      std::vector<float> all(static_cast<size_t>(n)), half(all.size() - all.size() / 2);
      files.read(w, {0, n}, all.data());
      files.read(w, {n / 2, n}, half.data());
      fuzz::expect(half.empty() || std::memcmp(half.data(), all.data() + n / 2, 4 * half.size()) == 0,
                   "a part differs from the whole");
    }
  });
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { import_npz(path, "", "", output, {.force = true}); })) return 0;
  fuzz::is_accepted({}, [&] { inspect_dataset(output); });
  std::filesystem::remove(output);
  return 0;
}
