// Indexes of models in several safetensors files, beside two files of known tensors.
#include <filesystem>

#include "core/io/safetensors.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

const std::vector<WeightToWrite> kWeights{{"a", {2}}, {"b", {1, 3}}, {"c", {}}};

std::string make_models() {
  const std::string folder = fuzz::scratch("model");
  std::filesystem::create_directory(folder);
  for (size_t f = 0; f < 2; ++f) {
    const std::vector<WeightToWrite> here =
        f == 0 ? std::vector<WeightToWrite>{kWeights[0]} : std::vector<WeightToWrite>{kWeights[1], kWeights[2]};
    WeightWriter writer(folder + "/" + weights_file_name(f, 2), here);
    for (const WeightToWrite& w : here) writer.write(std::vector<float>(3, 1.5f).data(), w.shape.numel());
    writer.commit();
  }
  return folder;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"{",
                                                      "}",
                                                      "\"",
                                                      ",",
                                                      ":",
                                                      "\"weight_map\":",
                                                      "\"metadata\":{}",
                                                      "\"a\":",
                                                      "\"b\":",
                                                      "\"c\":",
                                                      "../",
                                                      "/dev/zero",
                                                      "\\u0000",
                                                      "\\u002f",
                                                      ".safetensors",
                                                      "model-00001-of-00002.safetensors",
                                                      "model-00002-of-00002.safetensors",
                                                      "model.safetensors.index.json"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string folder = make_models();
  fuzz::write_file(folder + "/" + kWeightsIndex, fuzz::text_of(data, size));
  const auto open = [&] {
    const WeightFiles files = WeightFiles::open(folder);
    for (const StoredWeight& w : files.weights()) {
      fuzz::expect(w.name == "a" || w.name == "b" || w.name == "c", "a tensor of no file: ", w.name);
      std::vector<float> values(static_cast<size_t>(w.shape.numel()));
      files.read(w, {0, w.shape.numel()}, values.data());
      for (float v : values) fuzz::expect(v == 1.5f, "a wrong value");
    }
  };
  fuzz::is_accepted({ExitCode::kBadData, ExitCode::kMissingInput}, open);
  return 0;
}
