#include "core/nn/lora.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "core/base/error.h"
#include "core/base/name_pattern.h"
#include "core/nn/layers.h"

namespace lockstep {

double LoraOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return (alpha > 0 ? alpha : r) / (rslora ? std::sqrt(r) : r);
}

std::vector<Field> fields(LoraOptions& o) {
  return {
      field("rank", o.rank,
            "train adapters of this rank beside linear layers of the model of init.from, which is frozen (LoRA); "
            "0: none")
          .with_range(0, 65536)
          .without_effect_at_default(),
      field("alpha", o.alpha, "adapters are scaled by alpha / rank; 0: alpha is the rank")
          .with_range(0, 1e6)
          .without_effect_at_default(),
      field("rslora", o.rslora, "by alpha / sqrt(rank) instead").without_effect_at_default(),
      field("dropout", o.dropout, "probability of dropping an input feature of an adapter")
          .with_range(0, 0.99)
          .without_effect_at_default(),
      field("targets", o.targets,
            "linear layers that get adapters, by patterns of their dotted names, such as ['*.qkv', '*.proj'], or of "
            "parts of fused ones, such as ['*.qkv.q']; * matches any characters")
          .without_effect_at_default(),
      field("train", o.train, "parameters that are trained whole, by patterns, such as ['head.*']")
          .without_effect_at_default()};
}

bool is_lora_parameter(std::string_view name) { return name.ends_with(kLoraA) || name.ends_with(kLoraB); }

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
                                           {"lm_head", {"head"}}};
  return all;
}
constexpr std::string_view kAllLinear = "all-linear";  // every one but the output layer

// The linear layers below a module, and which of them and of their parts a target names.
class Targets {
 public:
  explicit Targets(Module& root) {
    collect(root);
    for (const Linear* layer : layers_) {
      names_.push_back(layer->name());
      for (std::string_view part : parts_of(*layer)) names_.push_back(str(layer->name(), ".", part));
    }
  }

  const std::vector<Linear*>& layers() const { return layers_; }

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
  std::vector<bool> used(patterns.size());
  const auto is_chosen = [&](const std::string& name) {
    bool chosen = false;
    for (size_t i = 0; i < patterns.size(); ++i)
      if (matches(patterns[i], name)) used[i] = chosen = true;
    return chosen;
  };
  for (Linear* layer : targets.layers()) {
    if (is_chosen(layer->name())) layer->add_adapter(o.rank, o.scale(), o.dropout);
    else
      for (std::string_view part : parts_of(*layer))
        if (is_chosen(str(layer->name(), ".", part))) layer->add_adapter(o.rank, o.scale(), o.dropout, part);
  }
  for (size_t i = 0; i < patterns.size(); ++i)
    require(used[i], ExitCode::kConfig, "lora.targets: pattern '", patterns[i],
            "' matches no linear layer of this model: another pattern takes the layer whole");
}

}  // namespace lockstep
