#include "core/models/token_transformer.h"

#include "core/base/trace.h"

namespace lockstep {

Tensor TokenTransformer::output_of(const Batch& batch) {
  trace_mark();
  AttentionScope scope;
  if (batch.find("documents")) scope = {.documents = batch["documents"], .positions = batch["positions"]};
  return (*this)(batch["tokens"], scope);
}

}  // namespace lockstep
