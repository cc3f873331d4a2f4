// safetensors files: the input as it is, and once more with its length in front, so that it is a header (up to the mark
// below) and data.
#include "core/io/safetensors.h"

#include <filesystem>
#include <vector>

#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

constexpr std::string_view kMark = "--data--";

std::string with_length(std::string_view all) {
  const size_t mark = std::min(all.find(kMark), all.size());
  std::string out;
  for (size_t i = 0; i < 8; ++i) out += static_cast<char>(mark >> (8 * i) & 0xff);
  out += all.substr(0, mark);
  if (mark < all.size()) out += all.substr(mark + kMark.size());
  return out;
}

void open_weights(std::string_view bytes) {
  static const std::string path = fuzz::scratch("model.safetensors");
  fuzz::write_file(path, bytes);
  int64_t elements = 0, readable = 0;
  const auto read_all = [&] {
    const WeightFiles files = WeightFiles::open(path);
    elements = readable = 0;
    for (const StoredWeight& w : files.weights()) {
      fuzz::expect(files.find(w.name) == &w, "a tensor is not found by its name");
      const int64_t n = w.shape.numel();
      fuzz::expect(n >= 0 && n <= 2 * static_cast<int64_t>(bytes.size()), "more elements than the file can hold");
      elements += n;
      std::vector<float> values(static_cast<size_t>(n));
      const bool floating = w.type == "F32" || w.type == "F16" || w.type == "BF16" || w.type == "F64" ||
                            w.type == "NF4" || w.type == "INT8";
      if (fuzz::is_accepted({ExitCode::kBadData}, [&] { files.read(w, {0, n}, values.data()); })) readable += n;
      else fuzz::expect(!floating, "a tensor of a type that is read was refused: ", w.type);
      if (n > 2 && floating) files.read(w, {1, n - 1}, values.data());
    }
  };
  if (fuzz::is_accepted({ExitCode::kBadData}, read_all)) fuzz::expect(readable <= elements, "elements");
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {kMark,
                                                      "{",
                                                      "}",
                                                      "[",
                                                      "]",
                                                      ",",
                                                      ":",
                                                      "\"",
                                                      " ",
                                                      "0",
                                                      "4",
                                                      "8",
                                                      "-1",
                                                      "1.0",
                                                      "1e0",
                                                      "\"a\":",
                                                      "\"dtype\":",
                                                      "\"shape\":",
                                                      "\"data_offsets\":",
                                                      "\"__metadata__\":{\"format\":\"pt\"}",
                                                      "\"F32\"",
                                                      "\"F16\"",
                                                      "\"BF16\"",
                                                      "\"F64\"",
                                                      "\"F4\"",
                                                      "\"U8\"",
                                                      "\"I8\"",
                                                      ".quant_state.bitsandbytes__nf4",
                                                      ".absmax",
                                                      ".nested_absmax",
                                                      ".SCB",
                                                      "\"blocksize\": ",
                                                      "\"nested_blocksize\": ",
                                                      "\"I64\"",
                                                      "[0,4]",
                                                      "[4,8]",
                                                      "4611686018427387904",
                                                      "9223372036854775807",
                                                      "18446744073709551615",
                                                      "\"b\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  open_weights(fuzz::text_of(data, size));
  open_weights(with_length(fuzz::text_of(data, size)));
  return 0;
}
