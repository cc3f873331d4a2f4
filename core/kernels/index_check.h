// Checks of indices that come from data. Stateless. Compiled once, not for each instruction-set level, as it throws.
#pragma once

#include <string>

#include "core/base/error.h"
#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep {

inline std::string index_error_text(IndexCheckArgs::Use use, int64_t value, int64_t position, int64_t end) {
  constexpr const char* kAdvice = "; check the data against the model's vocabulary";
  if (use == IndexCheckArgs::Use::kElement)
    return str("gather or scatter_add: index ", value, " at position ", position, " is outside the last dimension's ",
               end, " elements");
  return use == IndexCheckArgs::Use::kEmbedding ? str("embedding: index ", value, " at position ", position,
                                                      " is outside the table's ", end, " rows", kAdvice)
                                                : str("cross_entropy: target ", value, " at position ", position,
                                                      " is outside the ", end, " classes", kAdvice);
}

// The kernel check_indices of CPUs: throws at once.
void check_indices_here(Parallel& parallel, const IndexCheckArgs& a);

}  // namespace lockstep
