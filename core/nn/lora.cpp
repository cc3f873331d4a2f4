#include "core/nn/lora.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/error.h"
#include "core/base/name_pattern.h"
#include "core/nn/layers.h"

namespace lockstep {

int64_t LoraOptions::rank_of(std::string_view layer) const {
  int64_t out = rank;
  for (const LoraRule& rule : rules)
    if (rule.rank > 0 && matches(rule.pattern, layer)) out = rule.rank;
  return out;
}
double LoraOptions::alpha_of(std::string_view layer) const {
  double out = alpha;
  for (const LoraRule& rule : rules)
    if (rule.alpha > 0 && matches(rule.pattern, layer)) out = rule.alpha;
  return out > 0 ? out : static_cast<double>(rank_of(layer));
}
double LoraOptions::scale_of(std::string_view layer) const {
  const auto r = static_cast<double>(rank_of(layer));
  return alpha_of(layer) / (rslora ? std::sqrt(r) : r);
}

std::vector<Field> fields(LoraRule& rule) {
  return {field("pattern", rule.pattern, "of dotted names of layers, or of parts of them; * matches any characters"),
          field("rank", rule.rank, "of their adapters; 0: lora.rank").with_range(0, kMostLoraRank),
          field("alpha", rule.alpha, "of their adapters; 0: lora.alpha").with_range(0, 1e6)};
}

std::vector<Field> fields(LoraOptions& o) {
  return {
      field("rank", o.rank,
            "train adapters of this rank beside linear layers of the model of init.from, which is frozen (LoRA); "
            "0: none")
          .with_range(0, kMostLoraRank)
          .without_effect_at_default(),
      field("alpha", o.alpha, "adapters are scaled by alpha / rank; 0: alpha is the rank")
          .with_range(0, 1e6)
          .without_effect_at_default(),
      field("rslora", o.rslora, "by alpha / sqrt(rank) instead").without_effect_at_default(),
      field("dropout", o.dropout, "probability of dropping an input feature of an adapter")
          .with_range(0, 0.99)
          .without_effect_at_default(),
      field("dora", o.dora, "the lengths of the rows of adapted weights are trained apart from their directions (DoRA)")
          .without_effect_at_default(),
      list_field("rules", o.rules, "adapters of another rank or alpha; of those that match the last counts")
          .without_effect_at_default(),
      field("targets", o.targets,
            "linear layers that get adapters, by patterns of their dotted names, such as ['*.qkv', '*.proj'], or of "
            "parts of fused ones, such as ['*.qkv.q']; * matches any characters")
          .without_effect_at_default(),
      field("train", o.train, "parameters that are trained whole, by patterns, such as ['head.*']")
          .without_effect_at_default()};
}

bool is_lora_parameter(std::string_view name) {
  for (std::string_view end : {kLoraA, kLoraB, kLoraMagnitude, kLoraEmbeddingA, kLoraEmbeddingB})
    if (name.ends_with(end)) return true;
  return false;
}

LayerPart split_part(std::string_view name) {
  const size_t dot = std::min(name.rfind('.'), name.size());
  const std::vector<std::string_view> parts = lora_parts(name.substr(0, dot));
  const auto part = std::find(parts.begin(), parts.end(), name.substr(std::min(dot + 1, name.size())));
  if (part == parts.end()) return {std::string(name)};
  return {std::string(name.substr(0, dot)), part - parts.begin(), std::ssize(parts)};
}

std::vector<std::string_view> lora_parts(std::string_view layer) {
  if (layer == "qkv" || layer.ends_with(".qkv")) return {"q", "k", "v"};
  return {};
}

namespace {

std::vector<std::string_view> parts_of(const Linear& layer) {
  return layer.undivided() ? std::vector<std::string_view>() : lora_parts(layer.name());
}

// What peft's target_modules call layers of models that have ours (docs/fine-tuning.md), by the end of their names.
struct PeftTarget {
  std::string_view name;
  std::vector<std::string> ours;
};
const std::vector<PeftTarget>& peft_targets() {
  static const std::vector<PeftTarget> all{{"q_proj", {"*.q"}},
                                           {"k_proj", {"*.k"}},
                                           {"v_proj", {"*.v"}},
                                           {"query", {"*.q"}},
                                           {"key", {"*.k"}},
                                           {"value", {"*.v"}},
                                           {"c_attn", {"*.qkv"}},
                                           {"query_key_value", {"*.qkv"}},
                                           {"qkv_proj", {"*.qkv"}},
                                           {"Wqkv", {"*.qkv"}},
                                           {"o_proj", {"*.proj"}},
                                           {"out_proj", {"*.proj"}},
                                           {"attn.c_proj", {"*.proj"}},
                                           {"mlp.c_proj", {"*.down"}},
                                           {"c_proj", {"*.proj", "*.down"}},
                                           {"c_fc", {"*.up"}},
                                           {"gate_proj", {"*.gate"}},
                                           {"up_proj", {"*.up"}},
                                           {"down_proj", {"*.down"}},
                                           {"lm_head", {"head"}},
                                           {"embed_out", {"head"}},
                                           {"dense_h_to_4h", {"*.up"}},
                                           {"dense_4h_to_h", {"*.down"}},
                                           {"embed_tokens", {"wte"}},
                                           {"embed_in", {"wte"}},
                                           {"wte", {"wte"}},
                                           {"word_embeddings", {"tokens"}}};
  return all;
}
constexpr std::string_view kAllLinear = "all-linear";  // every one but the output layer

// The linear layers below a module, and which of them and of their parts a target names.
class Targets {
 public:
  explicit Targets(Module& root) {
    collect(root);
    for (const Embedding* table : tables_) names_.push_back(table->name());
    for (const Linear* layer : layers_) {
      names_.push_back(layer->name());
      for (std::string_view part : parts_of(*layer)) names_.push_back(str(layer->name(), ".", part));
    }
  }

  const std::vector<Linear*>& layers() const { return layers_; }
  const std::vector<Embedding*>& tables() const { return tables_; }

  // Patterns of our names: `target` itself where it matches a layer, or else what peft means by it.
  std::vector<std::string> patterns_of(const std::string& target) const {
    if (matches_one(target)) return {target};
    std::vector<std::string> out;
    if (target == kAllLinear)
      for (const Linear* layer : layers_)
        if (layer->name() != "head") out.push_back(layer->name());
    for (const PeftTarget& theirs : peft_targets())
      if (target == theirs.name || target == str("*.", theirs.name))
        std::copy_if(theirs.ours.begin(), theirs.ours.end(), std::back_inserter(out),
                     [&](const std::string& pattern) { return matches_one(pattern); });
    require(!out.empty(), ExitCode::kConfig, "lora.targets: pattern '", target,
            "' matches no linear layer of this model; ",
            matches_one("*." + target) ? str("did you mean '*.", target, "'?") : these());
    return out;
  }

 private:
  void collect(Module& m) {
    if (auto* linear = dynamic_cast<Linear*>(&m)) layers_.push_back(linear);
    if (auto* table = dynamic_cast<Embedding*>(&m); table && table->is_called()) tables_.push_back(table);
    for (auto& [_, child] : m.children()) collect(*child);
  }
  bool matches_one(const std::string& pattern) const {
    return std::any_of(names_.begin(), names_.end(), [&](const std::string& name) { return matches(pattern, name); });
  }
  // "its layers are *.qkv, *.proj, head"
  std::string these() const {
    if (layers_.empty()) return "it has none";
    std::vector<std::string> ends;
    for (const Linear* layer : layers_) {
      const size_t dot = layer->name().rfind('.');
      const std::string end = dot == std::string::npos ? layer->name() : "*" + layer->name().substr(dot);
      if (std::find(ends.begin(), ends.end(), end) == ends.end()) ends.push_back(end);
    }
    constexpr size_t kShown = 12;
    std::string out = "its layers are ";
    for (size_t i = 0; i < std::min(ends.size(), kShown); ++i) out += str(i ? ", " : "", ends[i]);
    return out + (ends.size() > kShown ? " and others" : "");
  }

  std::vector<Linear*> layers_;
  std::vector<Embedding*> tables_;
  std::vector<std::string> names_;
};

}  // namespace

std::vector<std::string> codable_weights(Module& root) {
  root.name_tree();
  std::vector<std::string> out;
  for (Module* block : root.blocks()) {
    if (dynamic_cast<Linear*>(block)) continue;
    const Targets below(*block);
    for (const Linear* layer : below.layers()) out.push_back(layer->name() + ".weight");
  }
  return out;
}

void add_adapters(Module& root, const LoraOptions& o) {
  root.name_tree();
  const Targets targets(root);
  std::vector<std::string> patterns;
  for (const std::string& target : o.targets)
    for (std::string& pattern : targets.patterns_of(target)) patterns.push_back(std::move(pattern));
  std::vector<bool> used(patterns.size()), ruled(o.rules.size());
  const auto shape_of = [&](const std::string& name) -> LoraShape {
    for (size_t i = 0; i < o.rules.size(); ++i)
      if (matches(o.rules[i].pattern, name)) ruled[i] = true;
    return {o.rank_of(name), o.scale_of(name), o.dropout, o.dora};
  };
  const auto is_chosen = [&](const std::string& name) {
    bool chosen = false;
    for (size_t i = 0; i < patterns.size(); ++i)
      if (matches(patterns[i], name)) used[i] = chosen = true;
    return chosen;
  };
  for (Linear* layer : targets.layers()) {
    if (is_chosen(layer->name())) layer->add_adapter(shape_of(layer->name()));
    else
      for (std::string_view part : parts_of(*layer))
        if (const std::string name = str(layer->name(), ".", part); is_chosen(name))
          layer->add_adapter(shape_of(name), part);
  }
  for (Embedding* table : targets.tables())
    if (std::find(patterns.begin(), patterns.end(), table->name()) != patterns.end() && is_chosen(table->name())) {
      require(!o.dora, ExitCode::kConfig, "lora.targets: ", table->name(),
              " is an embedding, whose adapter cannot have lora.dora: true");
      table->add_adapter(shape_of(table->name()));
    }
  for (size_t i = 0; i < o.rules.size(); ++i)
    require(ruled[i], ExitCode::kConfig, "lora.rules: pattern '", o.rules[i].pattern,
            "' matches no adapter of this model");
  for (size_t i = 0; i < patterns.size(); ++i)
    require(
        used[i], ExitCode::kConfig, "lora.targets: pattern '", patterns[i],
        "' adds no adapter: it matches no linear layer, or only layers that another pattern takes whole; an embedding "
        "must be named in full, without *");
}

}  // namespace lockstep
