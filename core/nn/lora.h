// Low-rank adapters of linear layers (LoRA, Hu et al. 2021): with adapters a layer computes
//   y = x W^T + b + scale (dropout(x) A^T) B^T,   A [rank, in], B [out, rank],
// where W and b stay as they are and A and B are trained. Plain values and functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/field.h"

namespace lockstep {

class Linear;
class Module;

struct LoraOptions {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 0;  // 0: the rank
  bool rslora = false;
  double dropout = 0;
  std::vector<std::string> targets, train;

  // alpha / rank, or with rslora alpha / sqrt(rank).
  double scale() const;
};
std::vector<Field> fields(LoraOptions& o);

// The parts of a layer, equal numbers of its outputs one after the other, that may have adapters of their own: of
// "blocks.0.qkv" q, k and v, as "blocks.0.qkv.q". Empty for other layers.
std::vector<std::string_view> lora_parts(std::string_view layer);

// The names of the weights that may be kept in codes: of all linear layers below the root's children.
std::vector<std::string> codable_weights(Module& root);

constexpr std::string_view kLoraA = ".lora_A", kLoraB = ".lora_B";  // ends of the names of adapters' parameters
bool is_lora_parameter(std::string_view name);

// Gives the linear layers below `root` whose dotted names match one of options.targets adapters, and of other layers
// the parts that match; call it before the parameters are placed. A target that matches none may be one of peft's
// target_modules, such as q_proj, c_attn or all-linear, and stands for the layers of ours that it means. Throws
// ExitCode::kConfig where a target names no linear layer.
void add_adapters(Module& root, const LoraOptions& options);

}  // namespace lockstep
