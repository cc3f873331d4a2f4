#include "core/kernels/index_check.h"

namespace lockstep {

void check_indices_here(Parallel&, const IndexCheckArgs& a) {
  for (int64_t i = 0; i < a.count; ++i)
    if (a.index[i] != a.ignored && (a.index[i] < 0 || a.index[i] >= a.end))
      throw Error(ExitCode::kBadData, index_error_text(a.use, a.index[i], i, a.end));
}

}  // namespace lockstep
