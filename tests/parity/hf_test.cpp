// Folders of transformers: what the models that they hold compute here is what transformers computed, they come apart
// and together again without a changed bit, and what does not fit is refused by name. hf holds what make_hf.py wrote;
// the environment variable LOCKSTEP_HF_MODELS names a folder with more of the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <map>

#include "core/autograd/node.h"
#include "core/device/context.h"
#include "core/interop/export_weights.h"
#include "core/interop/load_weights.h"
#include "core/io/safetensors.h"
#include "core/models/llama.h"
#include "launch/config/settings.h"
#include "tests/support/files.h"

namespace lockstep::hf_test {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::expect_error;
using test::TemporaryFolder;
using test::write_file;

std::vector<std::string> folders() {
  const char* more = std::getenv("LOCKSTEP_HF_MODELS");
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(more ? more : LOCKSTEP_HF)) out.push_back(entry.path().string());
  std::sort(out.begin(), out.end());
  return out;
}
std::string kept(const std::string& name) { return str(LOCKSTEP_HF, "/", name); }

std::vector<float> all_of(const WeightFiles& files, const StoredWeight& w) {
  std::vector<float> out(static_cast<size_t>(w.shape.numel()));
  files.read(w, {0, w.shape.numel()}, out.data());
  return out;
}

std::unique_ptr<Settings> settings_of(const std::string& folder, const std::vector<std::string>& overrides = {}) {
  return load_settings(builtin(), ConfigTree::parse(str("init:\n  from: ", folder, "\n"), "test.yaml", overrides), 1);
}

// Adds what keeps texts of these lengths apart from their padding up to `context`.
void add_padding(Batch& batch, const std::vector<float>& lengths, int64_t context) {
  std::vector<int32_t> ids, positions;
  for (const float length : lengths)
    for (int32_t t = 0; t < context; ++t) {
      const auto end = static_cast<int32_t>(length);
      ids.push_back(t >= end);
      positions.push_back(t < end ? t : t - end);
    }
  const Shape shape{static_cast<int64_t>(lengths.size()), context};
  batch.add("documents", Tensor::of(ids, shape));
  batch.add("positions", Tensor::of(positions, shape));
}

// A model as its folder has it.
struct Loaded {
  explicit Loaded(const std::string& folder) : settings(settings_of(folder)) {
    const WeightFiles files = WeightFiles::open(folder + "/expected.safetensors");
    const StoredWeight &in = *files.find("input"), &out = *files.find("logits");
    for (int i = 1; i < in.shape.rank(); ++i) task.input.push_back(in.shape[i]);
    task.classes = out.shape.back();
    const StoredWeight* lengths = files.find("lengths");
    if (lengths) {
      task.vocabulary = std::get<int64_t>(
          std::find_if(settings->pretrained->options.begin(), settings->pretrained->options.end(), [](auto& option) {
            return option.first == "vocabulary";
          })->second);
    }
    model = settings->model->build(task);
    place_parameters(*model, 1);
    model->eval();
    entries = entries_of(*model);
    const std::vector<float> values = all_of(files, in);
    const std::string name = model->reads().front().name;
    batch.add(name.empty() ? "first" : name,
              in.shape.rank() == 2 ? Tensor::of(std::vector<int32_t>(values.begin(), values.end()), in.shape)
                                   : Tensor::of(values, in.shape));
    if (lengths) add_padding(batch, all_of(files, *lengths), task.input[0]);
    logits = all_of(files, out);
  }
  std::unique_ptr<Settings> settings;
  TaskSpec task;
  std::unique_ptr<Model> model;
  std::vector<StateEntry> entries;
  Batch batch;
  std::vector<float> logits;
};

// What two layers of columns hold, and slices of that, is what the whole has there; with the hash of the whole.
TEST(HfFolder, BoxesAreReadAsTheWholeIs) {
  for (const std::string& folder : folders()) {
    SCOPED_TRACE(folder);
    Loaded m(folder);
    const Hash128 hash = load_weights(*m.settings->pretrained, m.entries);
    std::vector<StateEntry> boxes;
    for (const StateEntry& e : m.entries)
      for (const int half : {0, 1}) {
        const Shape& shape = e.region.shape;
        Region box = shape;
        if (shape.rank() > 0) {
          const IndexRange r = split_evenly(shape.back(), 2, half);
          box.begin[shape.rank() - 1] = r.begin, box.extent[shape.rank() - 1] = r.size();
        } else if (half == 1) {
          continue;
        }
        boxes.push_back({e.name, box, 0, Tensor::full({box.numel()}, NAN)});
      }
    Hash128 sum;
    std::map<std::string, StateEntry> whole;
    for (const StateEntry& e : m.entries) whole[e.name] = e;
    for (int rank = 0; rank < 2; ++rank) {
      std::vector<StateEntry> mine = cut_for_rank(boxes, rank, 2);
      for (const StateEntry& e : m.entries) mine.push_back(e.part(0, 0));
      sum += load_weights(*m.settings->pretrained, mine);
      for (const StateEntry& e : mine) {
        const float* all = whole[e.name].data.values<float>();
        for (int64_t i = 0; i < e.data.numel(); ++i)
          ASSERT_EQ(e.data.values<float>()[i], all[e.region.element(e.offset + i)]) << e.name << ", element " << i;
      }
    }
    EXPECT_EQ(to_hex(sum), to_hex(hash));
  }
}

TEST(HfFolder, LogitsAreThoseOfTransformers) {
  ASSERT_GE(folders().size(), 9u);
  for (const std::string& folder : folders()) {
    SCOPED_TRACE(folder);
    Loaded m(folder);
    load_weights(*m.settings->pretrained, m.entries);
    NoGrad no_grad;
    const Tensor out = m.model->output_of(m.batch);
    ASSERT_EQ(out.numel(), static_cast<int64_t>(m.logits.size()));
    double largest = 0, size = 0;
    for (size_t i = 0; i < m.logits.size(); ++i) {
      largest = std::max(largest, std::abs(static_cast<double>(out.values<float>()[i]) - m.logits[i]));
      size = std::max(size, std::abs(static_cast<double>(m.logits[i])));
    }
    EXPECT_LT(largest, 1e-4);
    EXPECT_GT(size, 0.1);
    RecordProperty(fs::path(folder).filename().string(), str(largest));
    if (std::getenv("LOCKSTEP_HF_MODELS")) std::printf("%-24s %.2e\n", fs::path(folder).filename().c_str(), largest);
  }
}

TEST(HfFolder, SlicesAreThoseOfTheWhole) {
  for (const std::string& folder : folders()) {
    SCOPED_TRACE(folder);
    Loaded m(folder);
    const HfModel& hf = *m.settings->pretrained;
    const WeightFiles files = WeightFiles::open(folder);
    for (const HfTensor& t : hf.tensors) {
      const auto entry = std::find_if(m.entries.begin(), m.entries.end(), [&](auto& e) { return e.name == t.name; });
      if (t.head && entry == m.entries.end()) continue;
      ASSERT_NE(entry, m.entries.end()) << t.name;
      const int64_t n = entry->region.numel();
      std::vector<float> whole(static_cast<size_t>(n)), pieces(whole);
      read_weight(t, entry->region.shape, hf, files, {0, n}, whole.data());
      for (int64_t at = 0; at < n; at += 13)
        read_weight(t, entry->region.shape, hf, files, {at, std::min(n, at + 13)}, pieces.data() + at);
      EXPECT_EQ(whole, pieces) << t.name;
    }
  }
}

TEST(HfFolder, WhatIsExportedIsWhatWasThere) {
  for (const std::string& folder : folders()) {
    SCOPED_TRACE(folder);
    TemporaryFolder scratch;
    Loaded m(folder);
    load_weights(*m.settings->pretrained, m.entries);
    const HfExport hf = hf_export_of(m.settings->model_name, m.settings->model->options(), m.task);
    write_hf_folder(scratch / "once", hf, tensors_of(m.entries), {.source = folder});
    write_hf_folder(scratch / "parts", hf, tensors_of(m.entries), {.bytes_a_file = 5000});
    EXPECT_TRUE(fs::exists(scratch / "parts/model.safetensors.index.json"));
    const std::string& model = m.settings->model_name;
    EXPECT_EQ(fs::exists(scratch / "parts/generation_config.json"), model == "gpt" || model == "llama");
    for (const char* name : {"once", "parts"}) {
      const WeightFiles before = WeightFiles::open(folder), after = WeightFiles::open(scratch / name);
      for (const StoredWeight& w : after.weights()) {
        const StoredWeight* original = before.find(w.name);
        if (!original) original = before.find("bert." + w.name);
        ASSERT_NE(original, nullptr) << w.name;
        EXPECT_EQ(w.shape, original->shape) << w.name;
        if (w.type == "I64") continue;
        EXPECT_EQ(all_of(after, w), all_of(before, *original)) << w.name;
      }
      EXPECT_EQ(after.weights().size(), before.weights().size());
      const HfModel again = read_hf_model(scratch / name);
      EXPECT_EQ(again.options, m.settings->pretrained->options);
    }
    EXPECT_EQ(scratch.files(), 2);
  }
}

TEST(HfFolder, ItsModelIsBuiltWithoutConfiguration) {
  for (const std::string& folder : folders()) {
    SCOPED_TRACE(folder);
    const HfModel model = read_hf_model(folder);
    const auto settings = settings_of(folder);
    EXPECT_EQ(json_line(hf_export_of(model.model, kind_of(model)->options(), model.task).config),
              json_line(hf_export_of(model.model, settings->model->options(), model.task).config));
  }
  const std::string own = kept("gpt2") + "/model.safetensors";
  expect_error(ExitCode::kBadData, {own, "is neither a folder of transformers nor a file of llm.c"},
               [&] { kind_of(read_hf_model(own)); });
  expect_error(ExitCode::kMissingInput, {"nowhere"}, [] { read_hf_model("nowhere"); });
}

// transformers refuses a llama whose heads do not divide its width, and computes the same as mistral without a window.
TEST(HfFolder, HeadsThatDoNotDivideTheWidthAreThoseOfMistral) {
  LlamaOptions o;
  o.width = 40, o.heads = 3, o.head_width = 20, o.vocabulary = 29;
  const auto config_of = [&] { return json_line(hf_export_of("llama", fields(o), {{16}, 29}).config); };
  const std::string config = config_of();
  EXPECT_NE(config.find("\"MistralForCausalLM\""), config.npos) << config;
  EXPECT_NE(config.find("\"model_type\":\"mistral\""), config.npos) << config;
  EXPECT_NE(config.find("\"sliding_window\":null"), config.npos) << config;
  const HfModel again = hf_model_of_config(config, "config.json");
  for (const auto& [key, value] :
       {std::pair("width", 40), std::pair("heads", 3), std::pair("head_width", 20), std::pair("window", 0)}) {
    const std::pair<std::string, JsonValue> option(key, int64_t{value});
    EXPECT_NE(std::find(again.options.begin(), again.options.end(), option), again.options.end()) << key;
  }
  o.heads = 4;
  EXPECT_NE(config_of().find("\"model_type\":\"llama\""), std::string::npos);
}

TEST(HfFolder, AKeyThatContradictsItIsRefused) {
  expect_error(ExitCode::kConfig, {"override 1 (model.layers=3)", "model.layers: 3", "gpt2/config.json it is 2"},
               [] { settings_of(kept("gpt2"), {"model.layers=3"}); });
  expect_error(ExitCode::kConfig, {"model.name: llama", "it is \"gpt\""},
               [] { settings_of(kept("gpt2"), {"model.name=llama"}); });
  EXPECT_EQ(settings_of(kept("gpt2"), {"model.layers=2", "model.name=gpt", "model.dropout=0.1"})->model_name, "gpt");
}

// The folder's tensors, each changed or left out by `change`, with the folder's config.json.
class Changed {
 public:
  Changed(const std::string& folder, const std::function<bool(WeightToWrite&)>& change, bool finite = true) {
    const WeightFiles files = WeightFiles::open(folder);
    std::vector<WeightToWrite> weights;
    for (const StoredWeight& w : files.weights()) {
      WeightToWrite to{w.name, w.shape};
      if (w.type != "I64" && change(to)) weights.push_back(to);
    }
    WeightWriter writer(scratch / kWeightsFile, weights);
    for (const WeightToWrite& w : weights)
      writer.write(std::vector<float>(static_cast<size_t>(w.shape.numel()), finite ? 1.f : NAN).data(),
                   w.shape.numel());
    writer.commit();
    fs::copy(folder + "/config.json", scratch / "config.json");
    fs::copy(folder + "/expected.safetensors", scratch / "expected.safetensors");
  }
  TemporaryFolder scratch;
};

// BertModel by itself: names without "bert.", no head. Its tensors are those of the model but for the head's.
TEST(HfFolder, ABareBertOpens) {
  const Changed bare(kept("bert"), [](WeightToWrite& w) {
    const bool body = w.name.starts_with("bert.");
    if (body) w.name = w.name.substr(5);
    return body;
  });
  Loaded m(bare.scratch / "");
  expect_error(ExitCode::kBadData, {"cls.predictions.bias is missing"},
               [&] { load_weights(*m.settings->pretrained, m.entries); });
  std::vector<StateEntry> body;
  for (const StateEntry& e : m.entries)
    if (e.name.find("transform.") == e.name.npos && e.name.find("head_bias") == e.name.npos) body.push_back(e);
  EXPECT_EQ(body.size() + 5, m.entries.size());
  load_weights(*m.settings->pretrained, body);
  for (const StateEntry& e : body) EXPECT_EQ(e.data.values<float>()[0], 1.f) << e.name;
}

TEST(HfFolder, TensorsThatDoNotFitAreNamed) {
  const auto refused = [](const Changed& changed, std::initializer_list<std::string> parts) {
    expect_error(ExitCode::kBadData, parts, [&] {
      Loaded m(changed.scratch / "");
      load_weights(*m.settings->pretrained, m.entries);
    });
  };
  refused(Changed(kept("gpt2"), [](WeightToWrite& w) { return w.name != "transformer.wpe.weight"; }),
          {"transformer.wpe.weight is missing"});
  refused(Changed(kept("gpt2"),
                  [](WeightToWrite& w) {
                    if (w.name == "transformer.wte.weight") w.name = "transformer.other", w.shape = {2, 3};
                    return true;
                  }),
          {"transformer.wte.weight is missing", "transformer.other [2, 3] is only there"});
  refused(Changed(kept("gpt2"),
                  [](WeightToWrite& w) {
                    if (w.name == "transformer.h.1.attn.c_attn.weight") w.shape = {48, 16};
                    return true;
                  }),
          {"transformer.h.1.attn.c_attn.weight is [48, 16] there and would be [16, 48] here"});
  refused(Changed(kept("llama3"), [](WeightToWrite& w) { return w.name.find("layers.1") == w.name.npos; }),
          {"model.layers.1.input_layernorm.weight is missing", "; and 4 more"});
  refused(Changed(
              kept("gpt2"), [](WeightToWrite&) { return true; }, false),
          {"not finite"});
}

TEST(HfFolder, ATiedCopyMustBeEqual) {
  Changed changed(kept("qwen2"), [](WeightToWrite&) { return true; });
  const auto write = [&](float head) {
    const WeightFiles files = WeightFiles::open(kept("qwen2"));
    std::vector<WeightToWrite> weights;
    for (const StoredWeight& w : files.weights()) weights.push_back({w.name, w.shape});
    weights.push_back({"lm_head.weight", files.find("model.embed_tokens.weight")->shape});
    fs::remove(changed.scratch / kWeightsFile);
    WeightWriter writer(changed.scratch / kWeightsFile, weights);
    for (const WeightToWrite& w : weights)
      writer.write(
          std::vector<float>(static_cast<size_t>(w.shape.numel()), w.name == "lm_head.weight" ? head : 1).data(),
          w.shape.numel());
    writer.commit();
    Loaded m(changed.scratch / "");
    load_weights(*m.settings->pretrained, m.entries);
  };
  write(1);
  expect_error(ExitCode::kBadData, {"lm_head.weight differs from model.embed_tokens.weight"}, [&] { write(2); });
}

TEST(HfConfig, WhatIsNotSupportedIsRefusedByName) {
  const auto refused = [](const std::string& model, const std::string& from, const std::string& to,
                          const std::string& key) {
    SCOPED_TRACE(to);
    std::string text = content(kept(model) + "/config.json");
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    text.replace(at, from.size(), to);
    expect_error(ExitCode::kBadData, {"DIR/config.json: ", key}, [&] { hf_model_of_config(text, "DIR/config.json"); });
  };
  for (const char* text : {"", "[]", "{", "{\"model_type\":1}", "{\"model_type\":null}"})
    expect_error(ExitCode::kBadData, {"DIR/config.json"}, [&] { hf_model_of_config(text, "DIR/config.json"); });
  refused("gpt2", "\"model_type\": \"gpt2\"", "\"model_type\": \"mamba\"",
          "mamba is not supported; these are: gpt2, llama, mistral, qwen2, qwen3, olmo2, smollm3, phi3, gemma2, "
          "gemma3_text, gpt_neox, bert, distilbert, roberta, vit, resnet");
  refused("gpt2", "gelu_new", "relu", "activation_function: relu");
  refused("gpt2", "\"n_inner\": null", "\"n_inner\": 63", "n_inner");
  refused("gpt2", "\"n_layer\": 2", "\"n_layer\": 1001", "model.layers: 1001");
  refused("gpt2", "\"n_layer\": 2", "\"n_layer\": -2", "n_layer is no integer");
  refused("gpt2", "\"n_layer\": 2", "\"n_layer\": 2.5", "n_layer is no integer");
  refused("gpt2", "\"n_layer\": 2", "\"n_layer\": 1e99", "n_layer is no integer");
  refused("gpt2", "\"n_layer\": 2", "\"n_layer\": 2, \"n_layer\": 2", "distinct keys");
  refused("gpt2", "\"layer_norm_epsilon\": 1e-05", "\"layer_norm_epsilon\": 1e-3", "layer_norm_epsilon");
  refused("gpt2", "\"scale_attn_weights\": true", "\"scale_attn_weights\": false", "scale_attn_weights");
  refused("gpt2", "\"tie_word_embeddings\": true", "\"tie_word_embeddings\": false", "tie_word_embeddings");
  refused("gpt2", "\"n_layer\": 2", "\"n_layer\": 2, \"quantization_config\": {}", "quantization_config");
  refused("llama3", "\"rope_type\": \"llama3\"", "\"rope_type\": \"dynamic\"", "rope_parameters.rope_type: dynamic");
  refused("llama3", "\"factor\": 4.0,", "", "rope_parameters.factor");
  refused("llama3", "\"low_freq_factor\": 1.0", "\"low_freq_factor\": 9.0", "model.rope_low_factor");
  refused("llama3", "\"hidden_act\": \"silu\"", "\"hidden_act\": \"gelu\"", "hidden_act: gelu");
  refused("mistral", "\"hidden_act\"", "\"attention_bias\": true, \"hidden_act\"", "attention_bias: true");
  refused("qwen3", "\"hidden_act\"", "\"mlp_bias\": true, \"hidden_act\"", "mlp_bias: true");
  refused("smollm3", "    1,\n    1,", "    0,\n    1,", "no_rope_layers");
  refused("smollm3", "\"full_attention\",", "\"sliding_attention\",", "layer_types");
  refused("phi3", "\"rope_type\": \"default\"", "\"rope_type\": \"linear\"", "rope_parameters.rope_type: linear");
  refused("phi3", "\"rope_type\": \"default\"", "\"rope_type\": \"longrope\", \"short_factor\": [1.0, 2.0]",
          "rope_parameters.short_factor has 2 numbers for the 1 pairs");
  refused("phi3", "\"rope_type\": \"default\"", "\"rope_type\": \"su\", \"short_factor\": [\"one\"]",
          "rope_parameters.short_factor holds what is no number");
  refused("phi3", "\"partial_rotary_factor\": 1.0", "\"partial_rotary_factor\": 0.75",
          "rope_parameters.partial_rotary_factor turns 1 features of a head of 2");
  refused("gemma2", "\"attn_logit_softcapping\": 2.0", "\"attn_logit_softcapping\": 0.0", "attn_logit_softcapping");
  refused("gemma2", "\"sliding_attention\"\n", "\"full_attention\"\n", "layer_types");
  refused("neox", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\"", "hidden_act: relu");
  refused("neox", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 0.1",
          "rope_parameters.partial_rotary_factor turns 0 features");
  refused("neox", "\"partial_rotary_factor\": 0.25", "\"partial_rotary_factor\": 1e300",
          "rope_parameters.partial_rotary_factor is not in (0, 1]");
  refused("gemma2", "\"final_logit_softcapping\": 3.0", "\"final_logit_softcapping\": 1e-300",
          "model.logit_cap: 1e-300");
  refused("neox", "\"num_attention_heads\": 4", "\"num_attention_heads\": 5", "num_attention_heads must divide");
  refused("roberta", "\"pad_token_id\": 1", "\"pad_token_id\": null", "pad_token_id is null");
  refused("roberta", "\"pad_token_id\": 1", "\"pad_token_id\": 30", "max_position_embeddings leaves no position");
  refused("mistral", "\"hidden_act\"", "\"layer_types\": [\"full_attention\", \"full_attention\"], \"hidden_act\"",
          "layer_types");
  refused("llama3", "\"hidden_act\"", "\"rope_scaling\": {\"rope_type\": \"linear\", \"factor\": 2.0}, \"hidden_act\"",
          "rope_scaling beside rope_parameters");
  refused("qwen3", "\"full_attention\"\n", "\"sliding_attention\"\n", "layer_types");
  refused("gemma3", "\"final_logit_softcapping\": null", "\"final_logit_softcapping\": 30.0",
          "final_logit_softcapping");
  refused("gemma3", "\"sliding_attention\",", "\"full_attention\",", "layer_types");
  refused("gemma3", "gelu_pytorch_tanh", "relu", "hidden_activation: relu");
  refused("gemma3", "\"use_bidirectional_attention\": false", "\"use_bidirectional_attention\": true",
          "use_bidirectional_attention");
  refused("llama3", "\"num_key_value_heads\": 2", "\"num_key_value_heads\": 3", "model.kv_heads: 3");
  refused("llama3", "\"num_attention_heads\": 4", "\"num_attention_heads\": 0", "num_attention_heads");
  refused("llama3", "\"hidden_size\": 16,", "", "hidden_size is no integer");
  refused("qwen2", "\"full_attention\",", "\"sliding_attention\",", "layer_types");
  refused("bert", "\"hidden_act\": \"gelu\"", "\"hidden_act\": \"relu\"", "hidden_act: relu");
  refused("bert", "\"intermediate_size\": 64", "\"intermediate_size\": 32", "intermediate_size");
  refused("bert", "\"hidden_size\": 16", "\"hidden_size\": 16, \"position_embedding_type\": \"relative_key\"",
          "relative_key");
  refused("vit", "\"qkv_bias\": true", "\"qkv_bias\": false", "qkv_bias");
  refused("resnet", "\"layer_type\": \"basic\"", "\"layer_type\": \"bottleneck\"", "depths");
  refused("resnet", "\"embedding_size\": 2", "\"embedding_size\": 3", "hidden_sizes");
}

}  // namespace
}  // namespace lockstep::hf_test
