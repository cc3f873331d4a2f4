// The kernels of one instruction-set level, gathered in its table.

#ifndef LOCKSTEP_ISA
#define LOCKSTEP_ISA host
#endif
#define LOCKSTEP_TEXT_OF(x) #x
#define LOCKSTEP_TEXT(x) LOCKSTEP_TEXT_OF(x)

#include "core/kernels/entries.h"
#include "core/kernels/kernels.h"

namespace lockstep {

void check_indices(Parallel&,
                   const IndexCheckArgs&);  // core/kernels/index_check.h, whose strings must not come in here

inline namespace LOCKSTEP_ISA {

extern const KernelTable table;
const KernelTable table = {
    .isa = LOCKSTEP_TEXT(LOCKSTEP_ISA),
    .pointwise = pointwise,
    .update = update,
    .row = row,
    .column_sum = column_sum,
    .norm_columns = norm_columns,
    .channel_sums = channel_sums,
    .batch_norm = batch_norm,
    .cell = cell,
    .gather = gather,
    .scatter_add = scatter_add,
    .gemm = gemm,
    .conv = conv,
    .conv_backward_input = conv_backward_input,
    .conv_backward_weight = conv_backward_weight,
    .max_pool = max_pool,
    .max_pool_backward = max_pool_backward,
    .resample = resample,
    .resample_backward = resample_backward,
    .rotary = rotary,
    .attention = attention,
    .attention_backward = attention_backward,
    .initial = initial,
    .tree_add = tree_add,
    .chunk_norms = chunk_norms,
    .tree_sums = tree_sums,
    .encode_blocks = encode_blocks,
    .decode_blocks = decode_blocks,
    .store = store,
    .step_outcome = step_outcome,
    .update_control = update_control,
    .fold = fold,
    .check_indices = check_indices,
};

}  // namespace LOCKSTEP_ISA
}  // namespace lockstep
