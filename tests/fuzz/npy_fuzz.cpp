// .npy files: the input is the array of samples, with labels for 2; the kept seeds show what is accepted.
#include <filesystem>

#include "data/import/import.h"
#include "data/samples/inspect.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;
using namespace std::literals;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"\x93NUMPY\1\0"sv, "'descr': "sv, "'<f4'"sv,
                                                      "'|u1'"sv,         "'<i8'"sv,     "'fortran_order': False"sv,
                                                      "'shape': (2, "sv, "), }"sv,      "9223372036854775807"sv};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string samples = fuzz::scratch("x.npy"), labels = fuzz::scratch("y.npy"),
                           output = fuzz::scratch("out.h5");
  static const std::string header = "{'descr': '|u1', 'fortran_order': False, 'shape': (2,), }\n";
  fuzz::write_file(samples, fuzz::text_of(data, size));
  fuzz::write_file(labels, "\x93NUMPY\1"s + '\0' + static_cast<char>(header.size()) + '\0' + header + '\1' + '\0');
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { import_npy(samples, labels, output, {.force = true}); })) return 0;
  DatasetReport report;
  fuzz::is_accepted({}, [&] { report = inspect_dataset(output); });
  fuzz::expect(report.count == 2 && report.classes == 2, "samples are missing");
  std::filesystem::remove(output);
  return 0;
}
