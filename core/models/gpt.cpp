#include "core/models/gpt.h"

#include <cmath>

#include "core/models/token_extents.h"
#include "core/nn/key_value_cache.h"
#include "core/ops/ops.h"

namespace lockstep {

std::vector<Field> fields(GptOptions& o) {
  return {
      field("layers", o.layers, "transformer blocks").with_range(1, 1000),
      field("heads", o.heads, "attention heads; must divide the width").with_range(1, 1024),
      field("width", o.width, "features of a token").with_unit("features").with_range(1, 65536),
      field("dropout", o.dropout, "probability of dropping a feature after the embedding and in each residual branch")
          .with_range(0, 0.99),
      field("bias", o.bias, "biases in linear layers and norms"),
      vocabulary_field(o.vocabulary),
      positions_field(o.positions)};
}

namespace {
Init weights() { return Init::normal(0.02); }
// Each block adds two branches to the residual stream: scaled so that its variance does not grow with depth.
Init branch_end(const GptOptions& o) { return Init::normal(0.02 / std::sqrt(2.0 * static_cast<double>(o.layers))); }
}  // namespace

Gpt::Gpt(const GptOptions& o, const TaskSpec& task)
    : context_(task.input.rank() == 1 ? task.input[0] : 0),
      wte_(child<Embedding>("wte", vocabulary_of(o.vocabulary, task), o.width, weights())),
      wpe_(child<Embedding>("wpe", positions_of(o.positions, context_), o.width, weights())),
      drop_(child<Dropout>("drop", o.dropout)) {
  wte_.set_called();
  require(task.input.rank() == 1, ExitCode::kConfig, "model.name: gpt needs tokens, not samples of shape ", task.input);
  require(o.width % o.heads == 0, ExitCode::kConfig, "model.heads: ", o.heads,
          " does not divide model.width: ", o.width);
  const TransformerBlock::Options block{.heads = o.heads,
                                        .width = o.width,
                                        .dropout = o.dropout,
                                        .causal = true,
                                        .bias = o.bias,
                                        .branch_end = branch_end(o)};
  for (int64_t i = 0; i < o.layers; ++i) blocks_.push_back(&child<TransformerBlock>(str("blocks.", i), block));
  ln_ = &child<LayerNorm>("ln", o.width, o.bias);
}

Tensor Gpt::forward(const Tensor& tokens_BT, const AttentionScope& scope) {
  return linear(features(tokens_BT, scope), wte_.weight());
}

Tensor Gpt::features(const Tensor& tokens_BT, const AttentionScope& scope) {
  check(tokens_BT.rank() == 2 && (scope.positions || tokens_BT.dim(1) <= context_), "gpt: tokens ", tokens_BT,
        " for a context of ", context_);
  const Tensor positions = scope.cache       ? embedding(wpe_.weight(), scope.cache->positions(tokens_BT.dim(1)))
                           : scope.positions ? embedding(wpe_.weight(), scope.positions)
                                             : slice(wpe_.weight(), 0, 0, tokens_BT.dim(1));
  Tensor h = drop_(add(wte_(tokens_BT), positions));
  for (TransformerBlock* block : blocks_) h = (*block)(h, scope);
  if (scope.cache) h = scope.cache->last_of(h);
  return (*ln_)(h);
}

double Gpt::flops() const {
  const int64_t head = wte_.weight().numel();
  return decoder_flops(context_, multiplying_parameters(*this) + head, wte_.weight().dim(1),
                       static_cast<double>(blocks_.size()) * visible_keys(context_));
}

Choice<ModelKind> gpt_choice() { return model_choice<Gpt, GptOptions>("gpt"); }

}  // namespace lockstep
