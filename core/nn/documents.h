// Documents: several texts in one row of tokens, none of which sees another (data.packing: pack), or a text and its
// padding. A plain value; passes find it in the context (core/device/context.h), where Model::output_of puts it. A pass
// has documents or a KeyValueCache, not both.
#pragma once

#include "core/tensor/tensor.h"

namespace lockstep {

struct Documents {
  Tensor ids;        // int32 [B, T]: equal for the tokens of one document
  Tensor positions;  // int32 [B, T]: of each token in its document, from 0
};

}  // namespace lockstep
