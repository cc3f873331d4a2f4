#include "core/kernels/range.h"

namespace lockstep {

void check_range(Parallel&, const RangeArgs& a) {
  for (int64_t i = 0; i < a.count; ++i)
    if (a.index[i] != a.ignored && (a.index[i] < 0 || a.index[i] >= a.end))
      throw Error(ExitCode::kBadData, range_error_text(a.use, a.index[i], i, a.end));
}

}  // namespace lockstep
