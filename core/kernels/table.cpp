// The kernels of one instruction-set level, gathered in its table.
#include "core/kernels/kernels.h"

#ifndef LOCKSTEP_ISA
#define LOCKSTEP_ISA host
#endif
#define LOCKSTEP_TEXT_OF(x) #x
#define LOCKSTEP_TEXT(x) LOCKSTEP_TEXT_OF(x)

namespace lockstep {

void check_range(Parallel&, const RangeArgs&);  // core/kernels/range.h, whose strings must not come in here

inline namespace LOCKSTEP_ISA {

void pointwise(Parallel&, PointwiseOp, const PointwiseArgs&);
void update(Parallel&, UpdateOp, const PointwiseArgs&);
void row(Parallel&, RowOp, const RowArgs&);
void column_sum(Parallel&, const ColumnArgs&);
void norm_columns(Parallel&, const NormColumnsArgs&);
void gather(Parallel&, const GatherArgs&);
void scatter_add(Parallel&, const GatherArgs&);
void gemm(Parallel&, const GemmArgs&);
void conv(Parallel&, const ConvArgs&);
void conv_backward_input(Parallel&, const ConvArgs&);
void conv_backward_weight(Parallel&, const ConvArgs&);
void max_pool(Parallel&, const PoolArgs&);
void max_pool_backward(Parallel&, const PoolArgs&);
void attention(Parallel&, const AttentionArgs&);
void attention_backward(Parallel&, const AttentionArgs&);
void initial(Parallel&, const InitialArgs&);
void tree_add(Parallel&, float*, const float*, int64_t);
void chunk_norms(Parallel&, const float*, int64_t, double*);
void tree_sums(Parallel&, const TreeSumsArgs&);
void store(Parallel&, const StoreArgs&);

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
    check_range,
};

}  // namespace LOCKSTEP_ISA
}  // namespace lockstep
