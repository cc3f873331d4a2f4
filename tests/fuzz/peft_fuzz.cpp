// Adapters of peft: adapter_config.json, a mark, then adapter_model.safetensors as its header, a mark and its data. An
// adapter that is accepted fills all adapters of the model with finite values, and is named alike when it is written.
#include "core/interop/peft_adapter.h"

#include <cmath>
#include <filesystem>

#include "core/interop/load_weights.h"
#include "launch/training/weights/build_model.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

constexpr std::string_view kWeightsMark = "--weights--", kDataMark = "--data--";
constexpr std::string_view kModel =
    R"({"model_type":"gpt2","n_layer":2,"n_head":2,"n_embd":8,"vocab_size":11,"n_positions":8})";
const TaskSpec kTask{{8}, 11};

// The parts before and after a mark.
std::pair<std::string_view, std::string_view> cut(std::string_view text, std::string_view mark) {
  const size_t at = std::min(text.find(mark), text.size());
  return {text.substr(0, at), text.substr(std::min(at + mark.size(), text.size()))};
}

std::string made_folder(const char* name) {
  const std::string made = fuzz::scratch(name);
  std::filesystem::create_directory(made);
  return made;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {kWeightsMark,
                                                      kDataMark,
                                                      "{",
                                                      "}",
                                                      "[",
                                                      "]",
                                                      ",",
                                                      ":",
                                                      "\"",
                                                      "null",
                                                      "true",
                                                      "0",
                                                      "1",
                                                      "-1",
                                                      "65536",
                                                      "2147483647",
                                                      "1e308",
                                                      "\"r\":",
                                                      "\"lora_alpha\":",
                                                      "\"use_rslora\":true",
                                                      "\"use_dora\":true",
                                                      "\"rank_pattern\":{}",
                                                      "\"init_lora_weights\":",
                                                      "\"BF16\"",
                                                      "\"F16\"",
                                                      "\"I64\"",
                                                      "base_model.model.",
                                                      "transformer.h.0.",
                                                      "transformer.h.1.",
                                                      "attn.c_attn.",
                                                      "attn.c_proj.",
                                                      "mlp.c_fc.",
                                                      "ln_1.weight",
                                                      "transformer.wte.weight",
                                                      ".lora_A.weight",
                                                      ".lora_B.weight"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const App app = builtin();
  static const std::string folder = made_folder("adapter"), base = [] {
    const std::string made = made_folder("base");
    fuzz::write_file(made + "/config.json", kModel);
    return made;
  }();
  static const HfModel model_of_base = read_hf_model(base);
  const auto [config, weights] = cut(fuzz::text_of(data, size), kWeightsMark);
  const auto [header, values] = cut(weights, kDataMark);
  std::string file;
  for (size_t i = 0; i < 8; ++i) file += static_cast<char>(header.size() >> (8 * i) & 0xff);
  fuzz::write_file(str(folder, "/", kPeftConfig), config);
  fuzz::write_file(str(folder, "/", kPeftWeights), str(file, header, values));
  PeftAdapter adapter;
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { adapter = read_peft_adapter(folder, model_of_base); })) return 0;
  // A norm or an embedding, which has no adapter, is a pattern of no linear layer.
  std::unique_ptr<Settings> settings;
  std::unique_ptr<Model> model;
  const std::string yaml = str("init:\n  from: ", base, "\n  adapter: ", folder, "\n");
  if (!fuzz::is_accepted({ExitCode::kConfig}, [&] {
        settings = load_settings(app, ConfigTree::parse(yaml, "fuzz.yaml"), 1);
        model = build_model(*settings, kTask);
      }))
    return 0;
  const auto named = [&](const std::string& name) {
    for (const HfTensor& t : settings->adapter->tensors)
      if (t.name == name) return true;
    return false;
  };
  std::vector<StateEntry> entries;
  for (const NamedParameter& p : model->parameters()) {
    const std::string name = str("parameters/", p.name);
    fuzz::expect(!is_lora_parameter(name) || named(name), "an adapter without tensors: ", name);
    if (named(name)) entries.push_back({name, p.parameter->value.shape(), 0, Tensor()});
  }
  // Names and shapes first: a rank that no tensor has must not cost memory.
  const auto fits = [&] {
    require_weights_for(*settings->adapter, WeightFiles::open(settings->adapter->folder), entries);
  };
  if (!fuzz::is_accepted({ExitCode::kBadData}, fits)) return 0;
  for (StateEntry& e : entries) e.data = Tensor::full({e.region.numel()}, NAN);
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { load_weights(*settings->adapter, entries); })) return 0;
  for (const StateEntry& e : entries)
    for (const double v : e.data.to_vector()) fuzz::expect(std::isfinite(v), e.name, " holds ", v);
  for (const HfTensor& t : peft_tensors(model_of_base, adapter.parts))
    fuzz::expect(named(t.name), "written, but not read: ", t.name);
  return 0;
}
