#include "core/models/token_transformer.h"

#include "core/base/trace.h"

namespace lockstep {
namespace {

AttentionScope scope_of(const Batch& batch) {
  if (!batch.find("documents")) return {};
  return {.documents = batch["documents"], .positions = batch["positions"]};
}

}  // namespace

Tensor TokenTransformer::output_of(const Batch& batch) {
  trace_mark();
  return (*this)(batch["tokens"], scope_of(batch));
}

Tensor TokenTransformer::with_features(const Batch& batch, const UseFeatures& use) {
  const Tensor x = surrounded([&] { return features(batch["tokens"], scope_of(batch)); }, false);
  return with_head([&](const Tensor& weight) { return use(x, weight); });
}

Tensor TokenTransformer::features(const Tensor&, const AttentionScope&) {
  throw Error(ExitCode::kInternal, "this model has no features apart from its logits");
}

}  // namespace lockstep
