// config.json of folders of transformers. What is accepted must give a configuration that loads, and names each of our
// tensors once.
#include <filesystem>
#include <set>

#include "core/interop/hf_model.h"
#include "launch/config/settings.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words =
      fuzz::with_json_words({"1",
                             "1e308",
                             "2147483647",
                             "4294967296",
                             "1e-5",
                             "\"gpt2\"",
                             "\"llama\"",
                             "\"mistral\"",
                             "\"qwen2\"",
                             "\"qwen3\"",
                             "\"bert\"",
                             "\"vit\"",
                             "\"resnet\"",
                             "\"model_type\":",
                             "\"rope_scaling\":{\"rope_type\":\"llama3\"}",
                             "\"rope_parameters\":",
                             "\"rope_theta\":",
                             "\"sliding_window\":",
                             "\"use_sliding_window\":true",
                             "\"layer_types\":[\"full_attention\"]",
                             "\"head_dim\":",
                             "\"num_key_value_heads\":",
                             "\"num_hidden_layers\":",
                             "\"depths\":[2,2,2,2]",
                             "\"quantization_config\":{}"});
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string folder = [] {
    const std::string made = fuzz::scratch("model");
    std::filesystem::create_directory(made);
    return made;
  }();
  static const App app = builtin();
  HfModel model;
  const std::string_view text = fuzz::text_of(data, size);
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { model = hf_model_of_config(text, "config.json"); })) return 0;
  std::set<std::string> ours, theirs;
  for (const HfTensor& t : model.tensors) {
    fuzz::expect(ours.insert(t.name).second, "twice: ", t.name);
    for (const std::string& name : t.from) fuzz::expect(theirs.insert(name).second, "twice: ", name);
  }
  fuzz::write_file(folder + "/config.json", text);
  std::unique_ptr<Settings> settings;
  const std::string yaml = str("init:\n  from: ", folder, "\n");
  fuzz::is_accepted({}, [&] { settings = load_settings(app, ConfigTree::parse(yaml, "fuzz.yaml"), 1); });
  fuzz::expect(settings->pretrained && settings->model_name == model.model, "another model");
  return 0;
}
