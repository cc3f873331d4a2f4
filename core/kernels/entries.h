// The kernels of one instruction-set level, or of a GPU, by the names under which tables take them. Defined in the
// level's own namespace.
#pragma once

#include <span>

#include "core/kernels/args.h"
#include "core/kernels/batch_norm.h"
#include "core/kernels/cell.h"
#include "core/kernels/parallel.h"
#include "core/kernels/pointwise.h"
#include "core/kernels/resample.h"
#include "core/kernels/rows.h"

namespace lockstep::inline LOCKSTEP_ISA {

void pointwise(Parallel&, PointwiseOp, const PointwiseArgs&);
void update(Parallel&, UpdateOp, std::span<const PointwiseArgs>);
void row(Parallel&, RowOp, const RowArgs&);
void column_sum(Parallel&, const ColumnArgs&);
void norm_columns(Parallel&, const NormColumnsArgs&);
void channel_sums(Parallel&, const ChannelSumsArgs&);
void batch_norm(Parallel&, BatchNormPass, const PointwiseArgs&);
void cell(Parallel&, CellPass, const PointwiseArgs&);
void gather(Parallel&, const GatherArgs&);
void scatter_add(Parallel&, const GatherArgs&);
void gemm(Parallel&, const GemmArgs&);
void conv(Parallel&, const ConvArgs&);
void conv_backward_input(Parallel&, const ConvArgs&);
void conv_backward_weight(Parallel&, const ConvArgs&);
void max_pool(Parallel&, const PoolArgs&);
void max_pool_backward(Parallel&, const PoolArgs&);
void resample(Parallel&, const ResampleArgs&);
void resample_backward(Parallel&, const ResampleArgs&);
void rotary(Parallel&, const RotaryArgs&);
void attention(Parallel&, const AttentionArgs&);
void attention_backward(Parallel&, const AttentionArgs&);
void initial(Parallel&, const InitialArgs&);
void tree_add(Parallel&, float*, const float*, int64_t);
void chunk_norms(Parallel&, const float*, int64_t, double*);
void tree_sums(Parallel&, const TreeSumsArgs&);
void encode_blocks(Parallel&, const BlockCodesArgs&);
void decode_blocks(Parallel&, const BlockCodesArgs&);
void store(Parallel&, const StoreArgs&);
void step_outcome(Parallel&, const StepOutcomeArgs&);
void update_control(Parallel&, const UpdateControlArgs&);
void fold(Parallel&, const FoldArgs&);

}  // namespace lockstep::inline LOCKSTEP_ISA
