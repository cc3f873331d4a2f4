// config.json as an export writes it: an import of it finds every option of the model again, in each family, or the
// export is refused by the name of the option. hf holds models of all families (make_hf.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <set>

#include "core/interop/hf_family.h"
#include "core/models/llama.h"
#include "tests/support/files.h"

namespace lockstep::hf_export_test {
namespace {

namespace fs = std::filesystem;
using test::expect_error;

JsonValue value_of(const Field& f) {
  if (const auto* b = std::get_if<bool*>(&f.target)) return **b;
  if (const auto* i = std::get_if<int64_t*>(&f.target)) return **i;
  if (const auto* d = std::get_if<double*>(&f.target)) return **d;
  if (const auto* word = std::get_if<EnumRef>(&f.target)) return word->get();
  if (const auto* list = std::get_if<std::vector<double>*>(&f.target))
    return json_array(std::vector<JsonValue>((*list)->begin(), (*list)->end()));
  ADD_FAILURE() << "model." << f.key << " has a type that this test does not change";
  return nullptr;
}

// Other values of the field than its own, in its range; each call sets one of them.
std::vector<std::function<void()>> changes_of(const Field& f) {
  std::vector<std::function<void()>> out;
  if (const auto* b = std::get_if<bool*>(&f.target)) out.push_back([b = *b] { *b = !*b; });
  if (const auto* i = std::get_if<int64_t*>(&f.target))
    for (const int64_t value : {**i + 1, **i * 2, **i - 1})
      if (value != **i && value > 0 && f.min <= static_cast<double>(value) && static_cast<double>(value) <= f.max)
        out.push_back([i = *i, value] { *i = value; });
  if (const auto* d = std::get_if<double*>(&f.target))
    for (const double value : {**d * 1.25, **d + 0.5})
      if (value != **d && f.min <= value && value <= f.max) out.push_back([d = *d, value] { *d = value; });
  if (const auto* word = std::get_if<EnumRef>(&f.target))
    for (const std::string& choice : f.choices)
      if (choice != word->get()) out.push_back([set = word->set, choice] { set(choice); });
  if (const auto* list = std::get_if<std::vector<double>*>(&f.target)) {
    out.push_back([list = *list] { list->push_back(1.5); });
    if (!(*list)->empty()) out.push_back([list = *list] { list->front() += 0.25; });
  }
  return out;
}

const JsonValue* find(const std::vector<std::pair<std::string, JsonValue>>& values, const std::string& key) {
  const auto found = std::find_if(values.begin(), values.end(), [&](auto& v) { return v.first == key; });
  return found == values.end() ? nullptr : &found->second;
}

// The value that an import finds: a layer that is not there has no number.
JsonValue found_again(const Field& f, int64_t layers) {
  JsonValue value = value_of(f);
  auto* whole = std::get_if<int64_t>(&value);
  if (whole && (f.key == "full_every" || f.key == "no_rope_every") && *whole > layers) *whole = 0;
  return value;
}

// Exports a model with these options: an import of what is written finds them all.
void expect_found_again(const std::string& model, const std::vector<Field>& options, const TaskSpec& task) {
  const HfExport exported = hf_export_of(model, options, task);
  const HfModel again = hf_model_of_config(json_line(exported.config), "config.json");
  EXPECT_EQ(again.model, model);
  const auto layers = std::find_if(options.begin(), options.end(), [](auto& f) { return f.key == "layers"; });
  for (const Field& f : options) {
    const JsonValue* found = find(again.options, f.key);
    if (f.key == "dropout") {  // which the user sets anew, and transformers keeps under several names
      EXPECT_EQ(found, nullptr);
      EXPECT_NE(json_line(exported.config).find(str(":", json_text_of(value_of(f)))), std::string::npos);
      continue;
    }
    if (f.key == "rope_by_length") {  // which a run may choose; transformers always has the factors of each length
      EXPECT_EQ(found, nullptr);
      continue;
    }
    ASSERT_NE(found, nullptr) << "an import does not say what model." << f.key << " is";
    const JsonValue wanted = found_again(f, layers == options.end() ? 0 : std::get<int64_t>(value_of(*layers)));
    if (f.key == "segments" && wanted == JsonValue(int64_t{0}) && exported.model.family != "distilbert")
      EXPECT_EQ(*found, JsonValue(int64_t{1})) << "with an embedding of zeros";
    else EXPECT_EQ(json_text_of(*found), json_text_of(wanted)) << "model." << f.key;
  }
}

// Each option by itself is changed in a model of each family. One that is added later is among them.
TEST(HfExport, AnOptionIsFoundAgainOrRefusedByName) {
  std::set<std::string> families;
  int64_t written = 0, refused = 0;
  for (const auto& entry : fs::directory_iterator(LOCKSTEP_HF)) {
    const HfModel base = read_hf_model(entry.path().string());
    families.insert(base.family);
    const size_t count = kind_of(base)->options().size();
    for (size_t i = 0; i < count; ++i) {
      const size_t ways = changes_of(kind_of(base)->options()[i]).size();
      const std::string key = kind_of(base)->options()[i].key;
      EXPECT_GT(ways, 0u) << "model." << key;
      for (size_t way = 0; way < ways; ++way) {
        const auto kind = kind_of(base);
        const std::vector<Field> options = kind->options();
        changes_of(options[i])[way]();
        SCOPED_TRACE(str(base.family, " with model.", key, ": ", json_text_of(value_of(options[i]))));
        try {
          expect_found_again(base.model, options, base.task);
          ++written;
        } catch (const Error& e) {
          ++refused;
          const std::string what = e.what();
          EXPECT_TRUE(e.code() == ExitCode::kBadData || e.code() == ExitCode::kConfig) << what;
          // It names this option, or another that the change makes one too many or too few.
          const bool other = std::any_of(options.begin(), options.end(),
                                         [&](const Field& f) { return what.starts_with("model." + f.key + ": "); });
          EXPECT_TRUE(what.find("model." + key) != what.npos || other) << what;
        }
      }
    }
  }
  for (const HfFamily& f : hf_families())
    for (const std::string& type : f.types) EXPECT_EQ(families.count(type), 1u) << "no model of " << type;
  EXPECT_GT(written, 100);
  EXPECT_GT(refused, 100);
}

// What was not chosen, but stands for a size of the data or of the model, is written as what it stands for.
TEST(HfExport, ZerosStandForTheSizesOfTheModel) {
  LlamaOptions o{.layers = 2, .heads = 4, .width = 40};
  const HfModel again =
      hf_model_of_config(json_line(hf_export_of("llama", fields(o), {{16}, 29}).config), "config.json");
  for (const auto& [key, value] : {std::pair("kv_heads", 4), std::pair("head_width", 10), std::pair("hidden", 128),
                                   std::pair("vocabulary", 29), std::pair("rope_width", 10)})
    EXPECT_EQ(*find(again.options, key), JsonValue(int64_t{value})) << key;
  // A layer that is not there has no say.
  o.no_rope_every = 3;
  EXPECT_EQ(hf_export_of("llama", fields(o), {{16}, 29}).model.family, "smollm3");
}

TEST(HfExport, WhatTransformersCannotHoldIsNamedWithItsFamily) {
  const auto refused = [](const LlamaOptions& given, std::initializer_list<std::string> parts) {
    LlamaOptions o = given;
    o.vocabulary = 29;
    expect_error(ExitCode::kBadData, parts, [&] { hf_export_of("llama", fields(o), {{16}, 29}); });
  };
  const LlamaOptions plain{.heads = 4, .width = 40};
  LlamaOptions o = plain;
  o.norms = BranchNorm::kAfter;
  refused(o,
          {"model.qk_norm: false cannot be written as olmo2 of transformers, the architecture for model.norms: after",
           "where it is true; export it without --to hf"});
  o = {.heads = 4, .width = 40, .no_rope_every = 2, .qk_norm = true};
  refused(o, {"model.qk_norm: true cannot be written as smollm3 of transformers", "model.no_rope_every"});
  o = {.heads = 4, .width = 40, .proj_bias = true};
  refused(o, {"model.proj_bias: true cannot be written as llama of transformers, where it is false"});
  o = plain;
  o.gate = GateForm::kGelu;
  refused(o, {"model.gate: gelu cannot be written as llama of transformers, where it is silu"});
  o = plain;
  o.logit_cap = 30;
  refused(o, {"model.logit_cap: 30", "as llama of transformers, where it is 0"});
  o = {.heads = 4, .width = 40, .window = 8, .window_from = 2};
  refused(o,
          {"model.qkv_bias: false cannot be written as qwen2 of transformers, the architecture for model.window_from"});
  o = {.heads = 4, .width = 40, .window = 8, .full_every = 2};
  refused(o, {"model.full_every: 2 cannot be written as mistral of transformers"});
  o = {.heads = 4, .width = 40, .window = 8, .qkv_bias = true, .proj_bias = true};
  refused(o, {"model.qkv_bias: true cannot be written as mistral of transformers, the architecture for model.window"});
  o = {.heads = 4, .width = 40, .rope = {.scaling = RopeScaling::kLinear}};
  o.fused = true;
  refused(o, {"model.rope_scaling: linear cannot be written as phi3 of transformers"});
  o = plain;
  o.rope_width = 4;
  refused(o, {"model.rope_width: 4 cannot be written as llama of transformers, where it is 10"});
  o = plain;
  o.rope.beta_fast = 16;  // which has an effect only with model.rope_scaling: yarn
  refused(o, {"model.rope_beta_fast: 16", "where it is 32"});
  o = plain;
  o.norm = NormForm::kLayer;
  refused(o, {"model.", "cannot be written as gpt_neox of transformers, the architecture for model.norm: layer"});
}

TEST(HfExport, GemmasRopeAndScaleMustBeThoseOfTransformers) {
  const auto refused = [](double scale, int64_t heads, RopeScaling scaling, const char* what, double cap = 0) {
    LlamaOptions g{.heads = heads, .width = 40, .head_width = 8, .window = 8, .vocabulary = 29};
    g.qk_norm = g.norms_from_one = g.scaled_embedding = true;
    g.norms = BranchNorm::kBoth, g.gate = GateForm::kGelu, g.attention_scale = scale, g.rope.scaling = scaling;
    g.score_cap = cap;
    if (!what) return (void)hf_export_of("llama", fields(g), {{16}, 29});
    expect_error(ExitCode::kBadData, {what}, [&] { hf_export_of("llama", fields(g), {{16}, 29}); });
  };
  refused(0.25, 4, RopeScaling::kNone, nullptr);
  refused(0.3, 4, RopeScaling::kNone, "model.attention_scale: 0.3");
  refused(0.25, 3, RopeScaling::kNone, "model.heads: 3 does not divide model.width: 40");
  refused(0.25, 4, RopeScaling::kLinear, "model.rope_scaling in layers with a window");
  refused(0.25, 4, RopeScaling::kNone, "model.score_cap: 50", 50);
}

}  // namespace
}  // namespace lockstep::hf_export_test
