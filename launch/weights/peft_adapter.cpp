#include "launch/weights/peft_adapter.h"

#include <algorithm>
#include <map>
#include <set>

#include "core/base/error.h"
#include "core/io/state.h"
#include "launch/weights/hf_config.h"

namespace lockstep {
namespace {

constexpr std::string_view kPeftPrefix = "base_model.model.", kOfWeight = ".weight";
constexpr const char* kSameA = "as they are one layer here, whose adapter has one A";

// Keys of what changes an adapter's results and is not supported; such a key must be absent, null, false or empty.
constexpr const char* kNotSupported[] = {"alora_invocation_tokens",
                                         "alpha_pattern",
                                         "arrow_config",
                                         "kasa_config",
                                         "layer_replication",
                                         "lora_bias",
                                         "monteclora_config",
                                         "rank_pattern",
                                         "target_parameters",
                                         "trainable_token_indices",
                                         "use_bdlora",
                                         "use_dora",
                                         "use_qalora",
                                         "velora_config"};

LoraOptions options_of(const HfConfig& c) {
  c.one_of("peft_type", {"LORA"});
  c.one_of("bias", {"none"});
  for (const char* key : kNotSupported)
    if (const auto value = c.json_of(key); value && *value != "false" && *value != "{}" && *value != "[]")
      c.refuse(key, "is not supported");
  // Others change the weights of the model, too, when peft loads the adapter.
  if (const auto how = c.json_of("init_lora_weights"); how && *how != "true" && *how != "false")
    c.one_of("init_lora_weights", {"gaussian"});
  LoraOptions o;
  o.rank = c.integer("r", 8);
  o.alpha = c.number("lora_alpha", 8);
  o.rslora = c.truth("use_rslora", false);
  o.dropout = c.number("lora_dropout", 0);
  if (o.rank < 1 || o.rank > 65536) c.refuse("r", "is not in [1, 65536]");
  if (!(o.alpha > 0) || o.alpha > 1e6) c.refuse("lora_alpha", "is not in (0, 1e6]");
  if (o.dropout < 0 || o.dropout > 0.99) c.refuse("lora_dropout", "is not in [0, 0.99]");
  return o;
}

std::string without_end(const std::string& name, std::string_view end) {
  return name.substr(0, name.size() - end.size());
}

// "transformer.h.0.attn.c_attn" of "transformer.h.0.attn.c_attn.weight".
std::string module_of(const std::string& tensor) { return tensor.substr(0, tensor.rfind('.')); }

const HfTensor* find(const HfModel& m, const std::string& parameter) {
  for (const HfTensor& t : m.tensors)
    if (t.name.size() == kParameters.size() + parameter.size() && t.name.ends_with(parameter) &&
        t.name.starts_with(kParameters))
      return &t;
  return nullptr;
}

const HfTensor& tensor_of(const HfModel& m, const std::string& parameter) {
  const HfTensor* t = find(m, parameter);
  require(t != nullptr, ExitCode::kBadData, parameter, ": has no counterpart in a ", m.family,
          " model of transformers");
  return *t;
}

}  // namespace

LoraOptions peft_options(std::string_view json, const std::string& path) {
  return options_of(HfConfig::parse(json, path));
}

std::vector<HfTensor> peft_tensors(const HfModel& base, const std::vector<std::string>& layers,
                                   const std::vector<std::string>& trained) {
  require(base.family != "vit" && base.family != "resnet", ExitCode::kBadData, "adapters of a ", base.family,
          " model: peft names its layers in another way than files of transformers do, which is not supported");
  std::vector<HfTensor> out;
  for (const std::string& layer : layers) {
    HfTensor b{cat(kParameters, layer, kLoraB), {}};
    for (const std::string& weight : tensor_of(base, layer + std::string(kOfWeight)).from) {
      const std::string module = cat(kPeftPrefix, module_of(weight));
      out.push_back({cat(kParameters, layer, kLoraA), {module + ".lora_A.weight"}});
      b.from.push_back(module + ".lora_B.weight");
    }
    out.push_back(std::move(b));
  }
  for (const std::string& name : trained) {
    HfTensor t = tensor_of(base, name);
    t.head = false;  // what an adapter holds, the model must have
    for (std::string& from : t.from) from = cat(kPeftPrefix, from);
    out.push_back(std::move(t));
  }
  return out;
}

PeftAdapter read_peft_adapter(const std::string& folder, const HfModel& base) {
  PeftAdapter out;
  out.options = options_of(HfConfig::load(cat(folder, "/", kPeftConfig)));
  const std::string path = cat(folder, "/", kPeftWeights);
  const WeightFiles files = WeightFiles::open(path);
  for (const HfTensor& t : base.tensors) {
    if (!t.name.starts_with(kParameters)) continue;
    const std::string name = t.name.substr(kParameters.size());
    const auto there = [&](const std::string& theirs) { return files.find(theirs) != nullptr; };
    if (t.name.ends_with(kOfWeight) && std::any_of(t.from.begin(), t.from.end(), [&](const std::string& from) {
          return there(cat(kPeftPrefix, module_of(from), ".lora_A.weight"));
        }))
      out.options.targets.push_back(without_end(name, kOfWeight));
    if (there(cat(kPeftPrefix, t.from[0]))) out.options.train.push_back(name);
  }
  require(!out.options.targets.empty(), ExitCode::kBadData, path, ": holds no adapter of a linear layer of ",
          base.folder,
          files.weights().empty() ? std::string() : cat("; its first tensor is ", files.weights()[0].name));
  HfModel& m = out.weights;
  m.folder = path;
  m.family = cat("adapter of a ", base.family);
  m.copies_because = kSameA;
  std::map<std::string, std::string> first;  // of several tensors that are one of ours
  for (HfTensor& t : peft_tensors(base, out.options.targets, out.options.train)) {
    const auto [known, is_new] = first.emplace(t.name, t.from[0]);
    if (is_new) m.tensors.push_back(std::move(t));
    else m.copies.emplace_back(t.from[0], known->second);
  }
  return out;
}

JsonObject peft_config(const HfModel& base, const LoraOptions& o, const std::vector<std::string>& layers,
                       const std::vector<std::string>& trained, const std::string& base_folder) {
  std::vector<JsonValue> targets, saved;
  for (const std::string& layer : layers)
    for (const std::string& weight : tensor_of(base, layer + std::string(kOfWeight)).from)
      targets.emplace_back(module_of(weight));
  std::set<std::string> modules;
  for (const std::string& name : trained)
    for (const std::string& from : tensor_of(base, name).from) modules.insert(module_of(from));
  for (const std::string& module : modules) saved.emplace_back(module);
  const bool causal = base.family != "bert";
  return {{"peft_type", std::string("LORA")},
          {"task_type", causal ? JsonValue(std::string("CAUSAL_LM")) : JsonValue(nullptr)},
          {"base_model_name_or_path", base_folder},
          {"r", o.rank},
          {"lora_alpha", o.alpha > 0 ? o.alpha : static_cast<double>(o.rank)},
          {"lora_dropout", o.dropout},
          {"use_rslora", o.rslora},
          {"target_modules", json_array(targets)},
          {"modules_to_save", saved.empty() ? JsonValue(nullptr) : JsonValue(json_array(saved))},
          {"bias", std::string("none")},
          {"fan_in_fan_out", base.family == "gpt2"},
          {"inference_mode", true},
          {"init_lora_weights", true}};
}

}  // namespace lockstep
