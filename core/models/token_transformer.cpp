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

Tensor TokenTransformer::features_of(const Batch& batch) {
  return surrounded([&] { return features(batch["tokens"], scope_of(batch)); });
}

Tensor TokenTransformer::features(const Tensor&, const AttentionScope&) {
  throw Error(ExitCode::kInternal, "this model has no features apart from its logits");
}

}  // namespace lockstep
