#include "core/nn/lora.h"

#include <algorithm>
#include <cmath>
#include <functional>

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

void add_adapters(Module& root, const LoraOptions& o) {
  root.name_tree();
  std::vector<Linear*> layers;
  const std::function<void(Module&)> collect = [&](Module& m) {
    if (auto* linear = dynamic_cast<Linear*>(&m)) layers.push_back(linear);
    for (auto& [_, child] : m.children()) collect(*child);
  };
  collect(root);
  std::vector<bool> used(o.targets.size());
  const auto is_chosen = [&](const std::string& name) {
    bool chosen = false;
    for (size_t i = 0; i < o.targets.size(); ++i)
      if (matches(o.targets[i], name)) used[i] = chosen = true;
    return chosen;
  };
  for (Linear* layer : layers) {
    if (is_chosen(layer->name())) layer->add_adapter(o.rank, o.scale(), o.dropout);
    else
      for (std::string_view part : lora_parts(layer->name()))
        if (is_chosen(str(layer->name(), ".", part))) layer->add_adapter(o.rank, o.scale(), o.dropout, part);
  }
  for (size_t i = 0; i < o.targets.size(); ++i)
    require(used[i], ExitCode::kConfig, "lora.targets: pattern '", o.targets[i],
            "' matches no linear layer of this model; ",
            layers.empty() ? std::string("it has none") : str("the first is '", layers[0]->name(), "'"));
}

}  // namespace lockstep
