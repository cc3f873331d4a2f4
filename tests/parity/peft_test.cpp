// Adapters of peft: what a model with one computes here is what peft computed, they are written as they were read, and
// what does not fit is refused by name. peft holds what make_peft.py wrote, for the models in hf.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>

#include "core/autograd/node.h"
#include "core/interop/export_weights.h"
#include "core/interop/hf_config.h"
#include "core/interop/load_weights.h"
#include "core/interop/peft_adapter.h"
#include "core/io/safetensors.h"
#include "launch/training/weights/build_model.h"
#include "tests/support/files.h"

namespace lockstep::peft_test {
namespace {

namespace fs = std::filesystem;
using test::content;
using test::expect_error;
using test::TemporaryFolder;
using test::write_file;

constexpr const char* kAdapters[] = {"gpt2",           "llama3",        "qwen2", "qwen2_tied",  "qwen3",
                                     "bert",           "bert_qv",       "vit",   "llama3_dora", "llama3_embed_tokens",
                                     "qwen3_patterns", "neox_embedding"};
// Of an adapter's folder, the model that it adapts.
std::string base_of(const std::string& name) { return str(LOCKSTEP_HF, "/", name.substr(0, name.find('_'))); }
std::string adapter_of(const std::string& name) { return str(LOCKSTEP_PEFT, "/", name); }

std::vector<float> all_of(const WeightFiles& files, const StoredWeight& w) {
  std::vector<float> out(static_cast<size_t>(w.shape.numel()));
  files.read(w, {0, w.shape.numel()}, out.data());
  return out;
}

struct Adapted {
  Adapted(const std::string& name, const std::string& adapter)
      : settings(load_settings(
            builtin(),
            ConfigTree::parse(str("init:\n  from: ", base_of(name), "\n  adapter: ", adapter, "\n"), "test.yaml"), 1)) {
    const WeightFiles files = WeightFiles::open(adapter_of(name) + "/expected.safetensors");
    const StoredWeight &in = *files.find("input"), &out = *files.find("logits");
    Shape of_sample;
    for (int i = 1; i < in.shape.rank(); ++i) of_sample.push_back(in.shape[i]);
    model = build_model(*settings, {of_sample, out.shape.back()});
    place_parameters(*model, 1);
    model->eval();
    for (auto& p : model->parameters()) {
      StateEntry e{str("parameters/", p.name), p.parameter->value.shape(), 0, p.parameter->value.detach().flatten()};
      const auto& own = settings->adapter->tensors;
      const bool of_adapter = std::any_of(own.begin(), own.end(), [&](auto& t) { return t.name == e.name; });
      if (settings->init_holds(p.name)) of_base.push_back(e);
      if (of_adapter) trained.push_back(std::move(e));
    }
    const std::vector<float> values = all_of(files, in);
    input = in.shape.rank() == 2 ? Tensor::of(std::vector<int32_t>(values.begin(), values.end()), in.shape)
                                 : Tensor::of(values, in.shape);
    logits = all_of(files, out);
  }
  std::unique_ptr<Settings> settings;
  std::unique_ptr<Model> model;
  std::vector<StateEntry> of_base, trained;
  Tensor input;
  std::vector<float> logits;
};

TEST(Peft, LogitsAreThoseOfPeft) {
  for (const char* name : kAdapters) {
    SCOPED_TRACE(name);
    Adapted m(name, adapter_of(name));
    NoGrad no_grad;
    const auto distance = [&] {
      const Tensor out = (*m.model)(m.input);
      double largest = 0;
      for (size_t i = 0; i < m.logits.size(); ++i)
        largest = std::max(largest, std::abs(static_cast<double>(out.values<float>()[i]) - m.logits[i]));
      return largest;
    };
    load_weights(*m.settings->pretrained, m.of_base);
    EXPECT_GT(distance(), 0.1) << "without the adapter, whose B is 0";
    load_weights(*m.settings->adapter, m.trained);
    EXPECT_LT(distance(), 1e-4);
  }
}

TEST(Peft, WhatIsWrittenIsWhatWasRead) {
  for (const char* name : kAdapters) {
    SCOPED_TRACE(name);
    TemporaryFolder scratch;
    Adapted m(name, adapter_of(name));
    load_weights(*m.settings->adapter, m.trained);
    const PeftAdapter read = read_peft_adapter(adapter_of(name), *m.settings->pretrained);
    write_peft_folder(scratch / "out", {*m.settings->pretrained, read.options, "base"}, tensors_of(m.trained));
    const HfConfig there = HfConfig::load(adapter_of(name) + "/" + kPeftConfig),
                   here = HfConfig::load(scratch / "out/" + kPeftConfig);
    for (const char* key : {"task_type", "fan_in_fan_out"}) EXPECT_EQ(there.json_of(key), here.json_of(key)) << key;
    const WeightFiles a = WeightFiles::open(adapter_of(name) + "/" + kPeftWeights),
                      b = WeightFiles::open(scratch / "out/" + kPeftWeights);
    const auto of_model = [](const StoredWeight& w) { return w.name.find(".base_layer.") != w.name.npos; };
    ASSERT_EQ(a.weights().size() - std::count_if(a.weights().begin(), a.weights().end(), of_model), b.weights().size());
    for (const StoredWeight& w : a.weights()) {
      if (of_model(w)) continue;
      const StoredWeight* other = b.find(w.name);
      ASSERT_NE(other, nullptr) << w.name;
      EXPECT_EQ(w.shape, other->shape) << w.name;
      EXPECT_EQ(all_of(a, w), all_of(b, *other)) << w.name;
    }
    const PeftAdapter again = read_peft_adapter(scratch / "out", *m.settings->pretrained);
    EXPECT_EQ(again.options.targets, read.options.targets);
    EXPECT_EQ(again.options.train, read.options.train);
    EXPECT_EQ(again.options.dora, read.options.dora);
    for (const std::string& layer : read.options.targets) {
      EXPECT_EQ(again.options.rank_of(layer), read.options.rank_of(layer)) << layer;
      EXPECT_EQ(again.options.scale_of(layer), read.options.scale_of(layer)) << layer;
    }
  }
}

// A copy of an adapter, to be damaged.
std::string copied(const TemporaryFolder& scratch, const std::string& name) {
  fs::copy(adapter_of(name), scratch / name);
  return scratch / name;
}

TEST(Peft, WhatIsNotSupportedIsRefusedByName) {
  const auto refused = [](const std::string& from, const std::string& to, const std::string& key) {
    SCOPED_TRACE(to);
    TemporaryFolder scratch;
    const std::string folder = copied(scratch, "gpt2"), path = folder + "/" + kPeftConfig;
    std::string text = content(path);
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    write_file(path, text.replace(at, from.size(), to));
    expect_error(ExitCode::kBadData, {path, key}, [&] { read_peft_adapter(folder, read_hf_model(base_of("gpt2"))); });
  };
  refused("\"LORA\"", "\"IA3\"", "peft_type: IA3 is not supported");
  refused("\"bias\": \"none\"", "\"bias\": \"all\"", "bias: all");
  refused("\"lora_bias\": false", "\"lora_bias\": true", "lora_bias is not supported");
  for (const char* key : {"rank_pattern", "alpha_pattern"}) {
    const auto with = [&](const char* pattern) {
      refused(str("\"", key, "\": {}"), str("\"", key, "\": {\"", pattern, "\": 3}"), key);
    };
    with("(a*)*b");
    with("(?=c_attn)");
    with("[c_attn");
    with("c_attn{3}");
    refused(str("\"", key, "\": {}"), str("\"", key, "\": {\"c_attn\": \"3\"}"), str(key, ".c_attn is no number"));
    refused(str("\"", key, "\": {}"), str("\"", key, "\": 3"), key);
  }
  refused("\"alpha_pattern\": {}", "\"alpha_pattern\": {\"c_attn\": 0}",
          "alpha_pattern gives transformer.h.0.attn.c_attn 0");
  refused("\"init_lora_weights\": true", "\"init_lora_weights\": \"pissa\"", "init_lora_weights: pissa");
  refused("\"r\": 2", "\"r\": 0", "r is not in");
  refused("\"r\": 2", "\"r\": 2.5", "r is no integer");
  refused("\"r\": 2", "\"r\": 2, \"r\": 2", "distinct keys");
  refused("\"lora_alpha\": 8", "\"lora_alpha\": -8", "lora_alpha");
  refused("\"lora_alpha\": 8", "\"lora_alpha\": 1e999", "");
  refused("\"lora_dropout\": 0.0", "\"lora_dropout\": 1", "lora_dropout");
  refused("{", "[", "");
}

// Changes one name in the header of a file without changing its length.
void rename_tensor(const std::string& path, const std::string& from, const std::string& to) {
  ASSERT_EQ(from.size(), to.size());
  std::string bytes = content(path);
  const size_t at = bytes.find(from);
  ASSERT_NE(at, bytes.npos) << from;
  write_file(path, bytes.replace(at, from.size(), to));
}

TEST(Peft, TensorsThatDoNotFitAreNamed) {
  const auto refused = [](const std::string& name, const std::string& from, const std::string& to,
                          std::initializer_list<std::string> parts) {
    SCOPED_TRACE(to);
    TemporaryFolder scratch;
    const std::string folder = copied(scratch, name);
    rename_tensor(folder + "/" + kPeftWeights, from, to);
    expect_error(ExitCode::kBadData, parts, [&] {
      Adapted m(name, folder);
      load_weights(*m.settings->adapter, m.trained);
    });
  };
  const std::string b = "base_model.model.transformer.h.0.attn.c_attn.lora_B.weight",
                    x = "base_model.model.transformer.h.0.attn.c_attn.lora_X.weight";
  refused("gpt2", b, x, {kPeftWeights, "adapter of a gpt2 model", str(b, " is missing"), x, "is only there"});
  refused("gpt2", "h.0.attn.c_attn.lora_A", "h.7.attn.c_attn.lora_A", {"h.7.attn.c_attn.lora_A", "is only there"});
  // A module that peft adapts, and here is part of one.
  refused("bert", "layer.0.attention.self.key.lora_B", "layer.0.attention.self.kex.lora_B",
          {"layer.0.attention.self.key.lora_B.weight is missing"});
  refused("llama3_dora", "0.self_attn.q_proj.lora_magnitude_vector", "0.self_attn.q_proj.lora_magnitude_vectox",
          {"q_proj.lora_magnitude_vector is missing"});
  refused("llama3_embed_tokens", "embed_tokens.base_layer.weight", "embed_tokenx.base_layer.weight",
          {"embed_tokenx.base_layer.weight, which ", "does not have"});
  refused("gpt2", "\"shape\":[48,2]", "\"shape\":[24,4]", {"lora_B.weight is [24, 4] there and would be [48, 2] here"});
  TemporaryFolder scratch;
  const std::string folder = copied(scratch, "gpt2");
  std::string bytes = content(adapter_of("llama3") + "/" + kPeftWeights);
  write_file(folder + "/" + kPeftWeights, bytes);
  expect_error(ExitCode::kBadData,
               {kPeftWeights, "holds no adapter of a linear layer or embedding of", "model.layers.0"},
               [&] { read_peft_adapter(folder, read_hf_model(base_of("gpt2"))); });
  bytes.pop_back();
  write_file(folder + "/" + kPeftWeights, bytes);
  expect_error(ExitCode::kBadData, {kPeftWeights}, [&] { read_peft_adapter(folder, read_hf_model(base_of("gpt2"))); });
}

TEST(Peft, OneLayerOfOursHasAnAdapterForEachOfTheirs) {
  const auto targets = [](const std::string& name) {
    return read_peft_adapter(adapter_of(name), read_hf_model(base_of(name))).options.targets;
  };
  EXPECT_EQ(targets("bert"), (std::vector<std::string>{"blocks.0.qkv.q", "blocks.0.qkv.k", "blocks.0.qkv.v",
                                                       "blocks.1.qkv.q", "blocks.1.qkv.k", "blocks.1.qkv.v"}));
  EXPECT_EQ(targets("bert_qv"), (std::vector<std::string>{"blocks.0.qkv.q", "blocks.0.qkv.v", "blocks.0.proj",
                                                          "blocks.1.qkv.q", "blocks.1.qkv.v", "blocks.1.proj"}));
  // An adapter of the whole layer is written as one of each, with the same A.
  const HfModel bert = read_hf_model(base_of("bert"));
  const auto tensors = peft_tensors(bert, {.layers = {"blocks.0.qkv"}, .tables = {}, .trained = {}});
  ASSERT_EQ(tensors.size(), 4u);
  EXPECT_EQ(tensors[1].name, "parameters/blocks.0.qkv.lora_A");
  EXPECT_EQ(tensors[1].from[0], "base_model.model.bert.encoder.layer.0.attention.self.key.lora_A.weight");
  EXPECT_EQ(tensors[3].from.size(), 3u);
  expect_error(
      ExitCode::kBadData, {"blocks.0.qkv.q: has no counterpart in a gpt2 model", "where blocks.0.qkv is one"}, [&] {
        peft_tensors(read_hf_model(base_of("gpt2")), {.layers = {"blocks.0.qkv.q"}, .tables = {}, .trained = {}});
      });
}

// Writes a file of tensors again, with the names that `renamed` gives; those without one are left out.
template <class Renamed>
void rewrite(const std::string& path, const Renamed& renamed) {
  const WeightFiles now = WeightFiles::open(path);
  std::vector<WeightToWrite> weights;
  std::vector<std::vector<float>> values;
  for (const StoredWeight& w : now.weights())
    if (const std::string name = renamed(w.name); !name.empty()) {
      weights.push_back({name, w.shape});
      values.push_back(all_of(now, w));
    }
  fs::remove(path);
  WeightWriter writer(path, weights);
  for (const auto& of_weight : values) writer.write(of_weight.data(), static_cast<int64_t>(of_weight.size()));
  writer.commit();
}

// peft trains one of two tied weights apart from the other, unless it is told to keep them tied and the file has both.
TEST(Peft, ATiedWeightComesWithItsCopy) {
  const std::string embedding = "base_model.model.model.embed_tokens.weight", head = "base_model.model.lm_head.weight";
  const auto refused = [](const std::string& name, const std::string& lost, const std::string& to,
                          std::initializer_list<std::string> parts) {
    SCOPED_TRACE(str(name, ": ", lost, " is ", to));
    TemporaryFolder scratch;
    const std::string folder = copied(scratch, name);
    rewrite(folder + "/" + kPeftWeights, [&](const std::string& n) { return n == lost ? to : n; });
    expect_error(ExitCode::kBadData, parts, [&] { read_peft_adapter(folder, read_hf_model(base_of(name))); });
  };
  refused("qwen2_tied", head, "",
          {kPeftWeights, str("holds ", embedding), "lm_head.weight are tied in", "ensure_weight_tying=True"});
  refused("qwen2_tied", embedding, "", {kPeftWeights, str("holds ", head), "peft unties them"});
  refused("gpt2", "base_model.model.transformer.h.1.attn.c_attn.lora_A.weight",
          "base_model.model.transformer.wte.weight", {"holds base_model.model.transformer.wte.weight", "both modules"});
  refused("bert", "base_model.model.bert.encoder.layer.1.attention.self.query.lora_A.weight",
          "base_model.model.bert.embeddings.word_embeddings.weight",
          {"bert.embeddings.word_embeddings.weight", "cls.predictions.decoder.weight", "train the adapter without it"});

  TemporaryFolder scratch;
  const std::string folder = copied(scratch, "qwen2_tied"), config = folder + "/" + kPeftConfig;
  const std::string text = content(config), key = "\"ensure_weight_tying\": true";
  std::string without = text;
  write_file(config, without.replace(text.find(key), key.size(), "\"ensure_weight_tying\": false"));
  expect_error(ExitCode::kBadData, {kPeftWeights, embedding, "ensure_weight_tying=True"},
               [&] { read_peft_adapter(folder, read_hf_model(base_of("qwen2_tied"))); });
  write_file(config, text);
  std::string bytes = content(folder + "/" + kPeftWeights);
  uint64_t header = 0;
  std::memcpy(&header, bytes.data(), sizeof header);
  bytes[sizeof header + header] ^= 1;  // of the head, which comes first
  write_file(folder + "/" + kPeftWeights, bytes);
  Adapted m("qwen2_tied", folder);
  expect_error(ExitCode::kBadData, {head, "differs from", embedding},
               [&] { load_weights(*m.settings->adapter, m.trained); });

  const JsonObject written = peft_config(read_hf_model(base_of("gpt2")), {},
                                         {.layers = {"blocks.0.qkv"}, .tables = {}, .trained = {"wte.weight"}}, "base");
  const std::string line = json_line(written);
  EXPECT_NE(line.find("\"modules_to_save\":[\"lm_head\",\"transformer.wte\"]"), line.npos) << line;
  EXPECT_NE(line.find("\"ensure_weight_tying\":true"), line.npos) << line;
  expect_error(ExitCode::kBadData, {"tokens.weight was trained, and is tied", "--to hf"}, [&] {
    peft_tensors(read_hf_model(base_of("bert")), {.layers = {}, .tables = {}, .trained = {"tokens.weight"}});
  });
}

// As transformers 4 names the modules of ViT, which files still do.
TEST(Peft, OldNamesOfVitAreRead) {
  TemporaryFolder scratch;
  const std::string folder = copied(scratch, "vit"), path = folder + "/" + kPeftWeights;
  const std::pair<std::string, std::string> names[] = {
      {"vit.layers", "vit.encoder.layer"}, {"attention.q_proj", "attention.attention.query"},
      {"mlp.fc1", "intermediate.dense"},   {"attention.v_proj", "attention.attention.value"},
      {"mlp.fc2", "output.dense"},         {"attention.o_proj", "attention.output.dense"}};
  rewrite(path, [&](std::string name) {
    for (const auto& [from, to] : names)
      if (const size_t at = name.find(from); at != name.npos) name.replace(at, from.size(), to);
    return name;
  });
  Adapted a("vit", adapter_of("vit")), b("vit", folder);
  load_weights(*a.settings->adapter, a.trained);
  load_weights(*b.settings->adapter, b.trained);
  ASSERT_EQ(a.trained.size(), 22u);
  for (size_t i = 0; i < a.trained.size(); ++i) {
    EXPECT_EQ(a.trained[i].name, b.trained[i].name);
    EXPECT_EQ(a.trained[i].data.to_vector(), b.trained[i].data.to_vector());
  }
}

TEST(Peft, FamiliesWithoutAdaptersAreRefused) {
  expect_error(ExitCode::kBadData, {"adapters of a resnet model"},
               [&] { named_by_peft(read_hf_model(base_of("resnet"))); });
}

}  // namespace
}  // namespace lockstep::peft_test
