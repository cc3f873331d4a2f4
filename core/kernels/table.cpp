// The kernels of one instruction-set level, gathered in its table.

#ifndef LOCKSTEP_ISA
#define LOCKSTEP_ISA host
#endif
#define LOCKSTEP_TEXT_OF(x) #x
#define LOCKSTEP_TEXT(x) LOCKSTEP_TEXT_OF(x)

#include "core/kernels/entries.h"
#include "core/kernels/kernels.h"

namespace lockstep {

void check_range(Parallel&, const RangeArgs&);  // core/kernels/range.h, whose strings must not come in here

inline namespace LOCKSTEP_ISA {

extern const KernelTable table;
const KernelTable table = {
    LOCKSTEP_TEXT(LOCKSTEP_ISA),
    pointwise,
    update,
    row,
    column_sum,
    norm_columns,
    gather,
    scatter_add,
    gemm,
    conv,
    conv_backward_input,
    conv_backward_weight,
    max_pool,
    max_pool_backward,
    attention,
    attention_backward,
    initial,
    tree_add,
    chunk_norms,
    tree_sums,
    store,
    step_outcome,
    update_control,
    check_range,
};

}  // namespace LOCKSTEP_ISA
}  // namespace lockstep
