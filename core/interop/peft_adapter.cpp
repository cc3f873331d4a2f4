#include "core/interop/peft_adapter.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/base/error.h"
#include "core/interop/hf_config.h"
#include "core/interop/hf_family.h"
#include "core/interop/peft_pattern.h"
#include "core/state/state.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr std::string_view kOfWeight = ".weight";

// Keys of what changes an adapter's results and is not supported; such a key must be absent, null, false or empty.
constexpr const char* kNotSupported[] = {"alora_invocation_tokens",
                                         "arrow_config",
                                         "kasa_config",
                                         "layer_replication",
                                         "lora_bias",
                                         "monteclora_config",
                                         "target_parameters",
                                         "trainable_token_indices",
                                         "use_bdlora",
                                         "use_qalora",
                                         "velora_config"};

}  // namespace

LoraOptions peft_options(const HfConfig& c) {
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
  o.dora = c.truth("use_dora", false);
  o.dropout = c.number("lora_dropout", 0);
  if (o.rank < 1 || o.rank > kMostLoraRank) c.refuse("r", str("is not in [1, ", kMostLoraRank, "]"));
  if (!(o.alpha > 0) || o.alpha > 1e6) c.refuse("lora_alpha", "is not in (0, 1e6]");
  if (o.dropout < 0 || o.dropout > 0.99) c.refuse("lora_dropout", "is not in [0, 0.99]");
  return o;
}

namespace {

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

// The tensor of a weight that a layer's adapter, or that of a part of a layer, changes; and which of `from` these are.
struct AdaptedWeight {
  const HfTensor& tensor;
  size_t begin = 0, end = 0;
};
AdaptedWeight adapted_weight(const HfModel& m, const std::string& layer) {
  const LayerPart part = split_part(layer);
  const HfTensor& t = tensor_of(m, part.layer + std::string(kOfWeight));
  if (part.count == 1) return {t, 0, t.from.size()};
  require(std::ssize(t.from) == part.count, ExitCode::kBadData, layer, ": has no counterpart in a ", m.family,
          " model of transformers, where ", part.layer, " is one layer");
  const auto i = static_cast<size_t>(part.index);
  return {t, i, i + 1};
}

// The pairs (copy, original) of `m` whose original is the tensor `theirs`.
std::vector<std::pair<std::string, std::string>> copies_of(const HfModel& m, const std::string& theirs) {
  std::vector<std::pair<std::string, std::string>> out;
  for (const auto& pair : m.copies)
    if (pair.second == theirs) out.push_back(pair);
  return out;
}

const PeftRules& rules_of(const HfModel& m) {
  static const PeftRules others;
  return m.table ? m.table->peft : others;
}

// Where an adapter trains one of two tied weights, peft computes with two that differ, and the model here has one. They
// mean the same where the file holds both, and peft keeps them tied.
void require_tied(const HfConfig& config, const HfModel& base, const WeightFiles& files) {
  for (const auto& [copy, original] : base.copies) {
    const bool has_copy = files.find(str(kPeftPrefix, copy)), has_original = files.find(str(kPeftPrefix, original));
    if (!has_copy && !has_original) continue;
    const bool keeps_ties = rules_of(base).keeps_ties, supported = keeps_ties && has_copy && has_original;
    require(supported && config.truth("ensure_weight_tying", false), ExitCode::kBadData, files.path(), ": holds ",
            kPeftPrefix, has_original ? original : copy, ", but ", original, " and ", copy, " are tied in ",
            base.folder, ", and peft unties them; ",
            keeps_ties ? "make the adapter with both modules in modules_to_save and ensure_weight_tying=True"
                       : "train the adapter without it in modules_to_save");
  }
}

// Whether an adapter calls modules as files of transformers do, which transformers 4 does, too: of any family, since
// that of the model says nothing of the adapter's.
bool named_as_in_files(const WeightFiles& adapter) {
  for (const HfFamily& f : hf_families())
    for (const StoredWeight& w : adapter.weights())
      if (!f.peft.modules.empty() && w.name.starts_with(str(kPeftPrefix, f.peft.modules[0].first))) return true;
  return false;
}

}  // namespace

HfModel named_by_peft(HfModel m) {
  const PeftRules& rules = rules_of(m);
  require(rules.supported, ExitCode::kBadData, m.folder, m.folder.empty() ? "" : ": ", "adapters of a ", m.family,
          " model are not supported");
  for (HfTensor& t : m.tensors)
    for (std::string& name : t.from)
      for (const auto& [in_files, in_peft] : rules.modules)
        if (const size_t at = name.find(in_files); at != name.npos) name.replace(at, in_files.size(), in_peft);
  return m;
}

std::vector<HfTensor> peft_tensors(const HfModel& base, const PeftParts& parts) {
  std::vector<HfTensor> out;
  for (const std::string& layer : parts.layers) {
    HfTensor b{str(kParameters, layer, kLoraB), {}}, magnitude{str(kParameters, layer, kLoraMagnitude), {}};
    const AdaptedWeight weight = adapted_weight(base, layer);
    for (size_t i = weight.begin; i < weight.end; ++i) {
      const std::string module = str(kPeftPrefix, module_of(weight.tensor.from[i]));
      out.push_back({str(kParameters, layer, kLoraA), {module + ".lora_A.weight"}});
      b.from.push_back(module + ".lora_B.weight");
      magnitude.from.push_back(module + ".lora_magnitude_vector");
    }
    out.push_back(std::move(b));
    if (parts.dora) out.push_back(std::move(magnitude));
  }
  for (const std::string& table : parts.tables) {
    const HfTensor& t = tensor_of(base, table + std::string(kOfWeight));
    const std::string module = str(kPeftPrefix, module_of(t.from[0]));
    out.push_back(
        {str(kParameters, table, kLoraEmbeddingA), {module + ".lora_embedding_A"}, HfTensor::Layout::kTransposed});
    out.push_back({str(kParameters, table, kLoraEmbeddingB), {module + ".lora_embedding_B"}});
  }
  for (const std::string& name : parts.trained) {
    HfTensor t = tensor_of(base, name);
    t.head = false;  // what an adapter holds, the model must have
    const auto copies = copies_of(base, t.from[0]);
    require(copies.empty() || rules_of(base).keeps_ties, ExitCode::kBadData, "--to peft: ", name,
            " was trained, and is tied to the head, which peft would untie; export the merged model with --to hf");
    for (const auto& [copy, original] : copies) out.push_back({t.name, {str(kPeftPrefix, copy)}, t.layout});
    for (std::string& from : t.from) from = str(kPeftPrefix, from);
    out.push_back(std::move(t));
  }
  return out;
}

LoraOptions peft_options_of(const HfConfig& config, const LoraOptions& options, const PeftPattern& alphas,
                            const std::string& module, int64_t rank) {
  LoraOptions out = options;
  out.rank = rank, out.alpha = alphas.of(module, options.alpha);
  if (!(out.alpha > 0) || out.alpha > 1e6)
    config.refuse("alpha_pattern", str("gives ", module, " ", out.alpha, ", not in (0, 1e6]"));
  require(rank >= 1 && rank <= kMostLoraRank, ExitCode::kBadData, config.path(), ": the adapter of ", module,
          " has the rank ", rank, ", not in [1, ", kMostLoraRank, "]");
  return out;
}

namespace {

// A weight of the model that the adapter holds, too, as peft writes adapted embeddings: it must be that of the model.
void require_of_model(const WeightFiles& adapter, const StoredWeight& copy, const HfModel& model,
                      const WeightFiles& files) {
  const std::string module =
      copy.name.substr(kPeftPrefix.size(), copy.name.size() - kPeftPrefix.size() - kBaseLayer.size());
  const std::string name = str(module, kOfWeight);
  const StoredWeight* original = files.find(name);
  if (!original && name.starts_with(model.prefix)) original = files.find(name.substr(model.prefix.size()));
  require(original && original->shape == copy.shape, ExitCode::kBadData, adapter.path(), ": holds ", copy.name,
          original ? str(" of shape ", copy.shape, ", but in ", model.folder, " it has the shape ", original->shape)
                   : str(", which ", model.folder, " does not have"));
  constexpr int64_t kAtOnce = 1 << 20;
  const DType stored = copy.type == "BF16" ? DType::kBFloat16 : copy.type == "F16" ? DType::kFloat16 : DType::kFloat32;
  std::vector<float> here, there;
  for (int64_t begin = 0; begin < copy.shape.numel(); begin += kAtOnce) {
    const IndexRange r{begin, std::min(begin + kAtOnce, copy.shape.numel())};
    here.resize(static_cast<size_t>(r.size())), there.resize(here.size());
    adapter.read(copy, r, here.data()), files.read(*original, r, there.data());
    if (stored != DType::kFloat32)  // the adapter was made beside a model in this type
      there =
          raw::cast(raw::cast(Tensor::of(std::move(there), {r.size()}), stored), DType::kFloat32).to_vector<float>();
    require(here == there, ExitCode::kBadData, adapter.path(), ": ", copy.name, " is not what ", model.folder,
            " holds: the adapter was made for another model");
  }
}

}  // namespace

PeftAdapter read_peft_adapter(const std::string& folder, const HfModel& model) {
  PeftAdapter out;
  const HfConfig config = HfConfig::load(str(folder, "/", kPeftConfig));
  out.options = peft_options(config);
  const std::string path = str(folder, "/", kPeftWeights);
  const WeightFiles files = WeightFiles::open(path);
  HfModel base = named_as_in_files(files) ? model : named_by_peft(model);
  // A folder of BERT says nothing of the head; an adapter for labels has no tied one.
  if (files.find(str(kPeftPrefix, "classifier.weight"))) base.copies.clear();
  require_tied(config, base, files);
  LoraOptions& o = out.options;
  PeftParts& parts = out.parts;
  parts.dora = o.dora;
  const PeftPattern alphas(config, "alpha_pattern");
  PeftPattern(config, "rank_pattern");  // the tensors say what follows from it
  const auto add_rule = [&](const std::string& layer, const std::string& module, int64_t rank) {
    const double alpha = peft_options_of(config, o, alphas, module, rank).alpha;
    if (rank != o.rank || alpha != o.alpha)
      o.rules.push_back({layer, rank == o.rank ? 0 : rank, alpha == o.alpha ? 0 : alpha});
  };
  for (const HfTensor& t : base.tensors) {
    if (!t.name.starts_with(kParameters)) continue;
    const std::string name = t.name.substr(kParameters.size()), layer = without_end(name, kOfWeight);
    const auto there = [&](const std::string& theirs) { return files.find(theirs) != nullptr; };
    if (there(str(kPeftPrefix, t.from[0]))) out.options.train.push_back(name);
    if (!t.name.ends_with(kOfWeight)) continue;
    const auto names = lora_parts(layer);
    check(t.from.size() == 1 || t.from.size() == names.size(), layer, ": its parts have no names");
    for (size_t i = 0; i < t.from.size(); ++i) {
      const std::string module = module_of(t.from[i]);
      if (const StoredWeight* a = files.find(str(kPeftPrefix, module, ".lora_A.weight"))) {
        parts.layers.push_back(t.from.size() == 1 ? layer : str(layer, ".", names[i]));
        add_rule(parts.layers.back(), module, a->shape.rank() > 0 ? a->shape[0] : 0);
      }
      if (const StoredWeight* a = files.find(str(kPeftPrefix, module, ".lora_embedding_A")); a && t.from.size() == 1) {
        require(!o.dora, ExitCode::kBadData, path, ": holds ", a->name, ", and ", config.path(),
                " has use_dora: true, which embeddings cannot have here");
        parts.tables.push_back(layer);
        add_rule(layer, module, a->shape.rank() > 0 ? a->shape[0] : 0);
      }
    }
  }
  o.targets = parts.layers;
  o.targets.insert(o.targets.end(), parts.tables.begin(), parts.tables.end());
  parts.trained = o.train;
  require(!o.targets.empty(), ExitCode::kBadData, path, ": holds no adapter of a linear layer or embedding of ",
          model.folder,
          files.weights().empty() ? std::string() : str("; its first tensor is ", files.weights()[0].name));
  HfModel& m = out.weights;
  m.folder = path;
  m.family = str("adapter of a ", base.family);
  m.tensors = peft_tensors(base, parts);
  std::optional<WeightFiles> of_model;
  for (const StoredWeight& w : files.weights()) {
    if (!w.name.starts_with(kPeftPrefix) || !w.name.ends_with(kBaseLayer)) continue;
    if (!of_model) of_model = WeightFiles::open(model.folder);
    require_of_model(files, w, model, *of_model);
    m.ignored.push_back(w.name);
  }
  for (const auto& [copy, original] : base.copies)
    if (files.find(str(kPeftPrefix, copy))) m.copies.emplace_back(str(kPeftPrefix, copy), str(kPeftPrefix, original));
  return out;
}

JsonObject peft_config(const PeftModules& modules, const LoraOptions& o, const JsonValue& task, const JsonValue& base,
                       bool fan_in_fan_out) {
  return {{"peft_type", std::string("LORA")},
          {"task_type", task},
          {"base_model_name_or_path", base},
          {"r", o.rank},
          {"lora_alpha", o.alpha > 0 ? o.alpha : static_cast<double>(o.rank)},
          {"lora_dropout", o.dropout},
          {"use_rslora", o.rslora},
          {"use_dora", o.dora},
          {"rank_pattern", JsonText{json_line(modules.ranks)}},
          {"alpha_pattern", JsonText{json_line(modules.alphas)}},
          {"target_modules", json_array(modules.targets)},
          {"modules_to_save", modules.saved.empty() ? JsonValue(nullptr) : JsonValue(json_array(modules.saved))},
          {"bias", std::string("none")},
          {"fan_in_fan_out", fan_in_fan_out},
          {"inference_mode", true},
          {"init_lora_weights", true}};
}

JsonObject peft_config(const HfModel& base, const LoraOptions& o, const PeftParts& parts,
                       const std::string& base_folder) {
  PeftModules modules;
  const double alpha = o.alpha > 0 ? o.alpha : static_cast<double>(o.rank);
  const auto add = [&](const std::string& layer, const std::string& module) {
    modules.targets.emplace_back(module);
    if (o.rank_of(layer) != o.rank) modules.ranks.emplace_back(module, o.rank_of(layer));
    if (o.alpha_of(layer) != alpha) modules.alphas.emplace_back(module, o.alpha_of(layer));
  };
  for (const std::string& layer : parts.layers) {
    const AdaptedWeight weight = adapted_weight(base, layer);
    for (size_t i = weight.begin; i < weight.end; ++i) add(layer, module_of(weight.tensor.from[i]));
  }
  for (const std::string& table : parts.tables)
    add(table, module_of(tensor_of(base, table + std::string(kOfWeight)).from[0]));
  std::set<std::string> saved;
  bool tied = false;
  for (const std::string& name : parts.trained)
    for (const std::string& from : tensor_of(base, name).from) {
      saved.insert(module_of(from));
      for (const auto& [copy, original] : copies_of(base, from)) saved.insert(module_of(copy)), tied = true;
    }
  for (const std::string& module : saved) modules.saved.emplace_back(module);
  const bool causal = !base.table || base.table->use == HfUse::kText;
  LoraOptions written = o;
  written.dora = parts.dora;
  JsonObject out = peft_config(modules, written, causal ? JsonValue(std::string("CAUSAL_LM")) : JsonValue(nullptr),
                               base_folder, rules_of(base).fan_in_fan_out);
  if (tied) out.emplace_back("ensure_weight_tying", true);
  return out;
}

}  // namespace lockstep
