#include "core/models/bert.h"

#include "core/models/token_extents.h"
#include "core/ops/ops.h"

namespace lockstep {
namespace {
Init bert_weights() { return Init::normal(0.02); }
}  // namespace

std::vector<Field> fields(BertOptions& o) {
  return {
      field("layers", o.layers, "transformer blocks").with_range(1, 1000),
      field("heads", o.heads, "attention heads; must divide the width").with_range(1, 1024),
      field("width", o.width, "features of a token").with_unit("features").with_range(1, 65536),
      field("dropout", o.dropout, "probability of dropping a feature after the embedding and in each residual branch")
          .with_range(0, 0.99),
      gelu_field(o.gelu),
      field("norm_eps", o.norm_eps, "added to the variance in norms; 1e-5 in RoBERTa")
          .with_range(0, 1)
          .without_effect_at_default(),
      field("first_position", o.first_position,
            "the row of the table of positions that a text's first token has: 2 in RoBERTa, which counts in positions")
          .with_range(0, 1024)
          .without_effect_at_default(),
      field("segments", o.segments,
            "segments that the model has embeddings for, of which all tokens are in the first; 0: no such embeddings")
          .with_range(0, 1024)
          .without_effect_at_default(),
      enum_field("pooler", o.pooler, {{"tanh", BertPooler::kTanh}, {"relu", BertPooler::kRelu}},
                 "what stands between the two linear layers of the labels: tanh of BERT, relu of DistilBERT")
          .without_effect_at_default(),
      vocabulary_field(o.vocabulary),
      positions_field(o.positions)};
}

namespace {
int64_t rows_of_positions(const BertOptions& o, int64_t context) {
  if (o.first_position == 0) return positions_of(o.positions, context);
  const int64_t least = o.first_position + context;
  require(o.positions == 0 || o.positions >= least, ExitCode::kConfig, "model.positions: ", o.positions,
          " are fewer than model.first_position, ", o.first_position, ", and the ", context, " tokens of a sample");
  return o.positions > 0 ? o.positions : least;
}
}  // namespace

BertTransform::BertTransform(int64_t width, GeluForm gelu, double eps)
    : gelu_(gelu),
      dense_(child<Linear>("dense", width, width, true, bert_weights())),
      ln_(child<LayerNorm>("ln", width, true, eps)) {}
Tensor BertTransform::forward(const Tensor& x) { return ln_(apply(gelu_, dense_(x))); }

Bert::Bert(const BertOptions& o, const TaskSpec& task)
    : context_(task.input.rank() == 1 ? task.input[0] : 0),
      first_position_(o.first_position),
      pooling_(o.pooler),
      head_bias_(task.vocabulary > 0 ? nullptr
                                     : &parameter("head_bias", {vocabulary_of(o.vocabulary, task)}, Init::zeros())),
      tokens_(child<Embedding>("tokens", vocabulary_of(o.vocabulary, task), o.width, bert_weights())),
      positions_(child<Embedding>("positions", rows_of_positions(o, context_), o.width, bert_weights())),
      segments_(o.segments > 0 ? &child<Embedding>("segments", o.segments, o.width, bert_weights()) : nullptr),
      ln_(child<LayerNorm>("ln", o.width, true, o.norm_eps)),
      drop_(child<Dropout>("drop", o.dropout)) {
  tokens_.set_called();
  require(task.input.rank() == 1, ExitCode::kConfig, "model.name: bert needs tokens, not samples of shape ",
          task.input);
  require(o.width % o.heads == 0, ExitCode::kConfig, "model.heads: ", o.heads,
          " does not divide model.width: ", o.width);
  for (int64_t i = 0; i < o.layers; ++i)
    blocks_.push_back(&child<TransformerBlock>(
        str("blocks.", i), TransformerBlock::Options{o.heads, o.width, o.dropout, false, o.norm_eps, o.gelu}));
  flops_ = 6 * static_cast<double>(context_ * o.layers) * TransformerBlock::products(o.width, context_);
  if (head_bias_) {
    transform_ = &child<BertTransform>("transform", o.width, o.gelu, o.norm_eps);
    flops_ += 6 * static_cast<double>(context_ * o.width * (o.width + head_bias_->dim(0)));
  } else {
    pooler_ = &child<Linear>("pooler", o.width, o.width, true, bert_weights());
    head_drop_ = &child<Dropout>("head_drop", o.dropout);
    head_ = &child<Linear>("head", o.width, task.classes, true, bert_weights());
    flops_ += 6 * static_cast<double>(o.width * (o.width + task.classes));
  }
}

Tensor Bert::positions_of_tokens(const Tensor& tokens_BT, const AttentionScope& scope) {
  const Tensor& table = positions_.weight();
  if (!scope.positions) return slice(table, 0, first_position_, first_position_ + tokens_BT.dim(1));
  return embedding(first_position_ == 0 ? table : slice(table, 0, first_position_, table.dim(0)), scope.positions);
}

Tensor Bert::forward(const Tensor& tokens_BT, const AttentionScope& scope) {
  check(tokens_BT.rank() == 2 && tokens_BT.dim(1) <= context_, "bert: tokens ", tokens_BT, " for a context of ",
        context_);
  Tensor h = tokens_(tokens_BT);
  if (segments_) h = add(h, slice(segments_->weight(), 0, 0, 1));
  h = drop_(ln_(add(h, positions_of_tokens(tokens_BT, scope))));
  for (TransformerBlock* block : blocks_) h = (*block)(h, scope);
  if (transform_) return linear((*transform_)(h), tokens_.weight(), *head_bias_);
  const Tensor first = reshape(slice(h, 1, 0, 1), {h.dim(0), h.dim(2)});
  const Tensor pooled = (*pooler_)(first);
  return (*head_)((*head_drop_)(pooling_ == BertPooler::kTanh ? tanh(pooled) : relu(pooled)));
}

Choice<ModelKind> bert_choice() { return model_choice<Bert, BertOptions>("bert"); }

}  // namespace lockstep
