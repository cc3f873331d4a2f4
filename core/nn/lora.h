// Low-rank adapters of linear layers (LoRA, Hu et al. 2021): with adapters a layer computes
//   y = x W^T + b + scale (dropout(x) A^T) B^T,   A [rank, in], B [out, rank],
// where W and b stay as they are and A and B are trained. With weight decomposition (DoRA, Liu et al. 2024) the rows of
// W + scale B A have lengths m [out], which are trained, too, and begin as those of W: with n the lengths of these
// rows, through which no gradient goes,
//   y = x W^T + b + (m / n - 1) dropout(x) W^T + m / n scale (dropout(x) A^T) B^T.
// An embedding's adapter adds scale A[token] B^T, A [tokens, rank], B [width, rank]. Plain values and functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/field.h"

namespace lockstep {

class Linear;
class Module;

constexpr int64_t kMostLoraRank = 65536;

// Adapters of layers, or parts of layers, with another rank or alpha. 0: that of the others.
struct LoraRule {
  std::string pattern;
  int64_t rank = 0;
  double alpha = 0;
};
std::vector<Field> fields(LoraRule& rule);

struct LoraOptions {
  int64_t rank = 0;  // 0: no adapters
  double alpha = 0;  // 0: the rank
  bool rslora = false;
  double dropout = 0;
  bool dora = false;
  std::vector<std::string> targets, train;
  std::vector<LoraRule> rules;

  // Of a layer or part of a layer by its dotted name: what the last rule says that matches and gives it.
  int64_t rank_of(std::string_view layer) const;
  double alpha_of(std::string_view layer) const;  // the rank where none is given
  double scale_of(std::string_view layer) const;  // alpha / rank, or with rslora alpha / sqrt(rank)
};
std::vector<Field> fields(LoraOptions& o);

// The parts of a layer, equal numbers of its outputs one after the other, that may have adapters of their own: of
// "blocks.0.qkv" q, k and v, as "blocks.0.qkv.q". Empty for other layers.
std::vector<std::string_view> lora_parts(std::string_view layer);

// "blocks.0.qkv.q" as part 0 of 3 of its layer; of another name that is the layer, whole.
struct LayerPart {
  std::string layer;
  int64_t index = 0, count = 1;
};
LayerPart split_part(std::string_view name);

// The names of the weights that may be kept in codes: of all linear layers below the root's children.
std::vector<std::string> codable_weights(Module& root);

// Ends of the names of adapters' parameters: of linear layers, and of embeddings.
constexpr std::string_view kLoraA = ".lora_A", kLoraB = ".lora_B", kLoraMagnitude = ".lora_magnitude";
constexpr std::string_view kLoraEmbeddingA = ".lora_embedding_A", kLoraEmbeddingB = ".lora_embedding_B";
bool is_lora_parameter(std::string_view name);

// Gives the linear layers below `root` whose dotted names match one of options.targets adapters, and of other layers
// the parts that match; call it before the parameters are placed. A target that matches none may be one of peft's
// target_modules, such as q_proj, c_attn or all-linear, and stands for the layers of ours that it means. The embedding
// of tokens, too, where a target is its name. Throws ExitCode::kConfig where a target names no such layer, or a rule no
// adapter.
void add_adapters(Module& root, const LoraOptions& options);

}  // namespace lockstep
