// The list of kernels, from which follow KernelTable, the declarations of each level's functions (entries.h) and the
// tables of CPUs, of GPUs and of tests. No code.
#pragma once

// KERNEL(name, arguments after Parallel&...). Products of matrices: levels with instructions for bf16 and the libraries
// of a GPU have functions of their own.
#define LOCKSTEP_PRODUCT_KERNELS(KERNEL)                                                            \
  KERNEL(gemm, const GemmArgs&)                                                                     \
  KERNEL(conv, const ConvArgs&)                                                                     \
  KERNEL(conv_backward_input, const ConvArgs&)  /* x receives the gradient, y holds the incoming */ \
  KERNEL(conv_backward_weight, const ConvArgs&) /* weight receives the gradient */                  \
  KERNEL(attention, const AttentionArgs&)                                                           \
  KERNEL(attention_backward, const AttentionArgs&)                                                  \
  KERNEL(recurrent, const RecurrentArgs&)

#define LOCKSTEP_OTHER_KERNELS(KERNEL)                                                             \
  KERNEL(pointwise, PointwiseOp, const PointwiseArgs&)                                             \
  KERNEL(update, UpdateOp, std::span<const PointwiseArgs>) /* on a GPU one launch for all parts */ \
  KERNEL(row, RowOp, const RowArgs&)                                                               \
  KERNEL(column_sum, const ColumnArgs&)                                                            \
  KERNEL(norm_columns, const NormColumnsArgs&)                                                     \
  KERNEL(channel_sums, const ChannelSumsArgs&)                                                     \
  KERNEL(batch_norm, BatchNormPass, const PointwiseArgs&)                                          \
  KERNEL(cell, CellPass, const PointwiseArgs&)                                                     \
  KERNEL(gather, const GatherArgs&)                                                                \
  KERNEL(scatter_add, const GatherArgs&)                                                           \
  KERNEL(max_pool, const PoolArgs&)                                                                \
  KERNEL(max_pool_backward, const PoolArgs&) /* x receives the gradient */                         \
  KERNEL(resample, const ResampleArgs&)                                                            \
  KERNEL(resample_backward, const ResampleArgs&) /* x receives the gradient */                     \
  KERNEL(rotary, const RotaryArgs&)                                                                \
  KERNEL(initial, const InitialArgs&)                                                              \
  KERNEL(tree_add, float* /*sum*/, const float*, int64_t)     /* sum += n values */                \
  KERNEL(chunk_norms, const float*, int64_t, double* /*out*/) /* sums of squares by kStateChunk */ \
  KERNEL(tree_sums, const TreeSumsArgs&)                                                           \
  KERNEL(encode_blocks, const BlockCodesArgs&) /* values -> codes, scales */                       \
  KERNEL(decode_blocks, const BlockCodesArgs&) /* codes, scales -> values */                       \
  KERNEL(decode_weight, const WeightCodesArgs&)                                                    \
  KERNEL(store, const StoreArgs&)                                                                  \
  KERNEL(step_outcome, const StepOutcomeArgs&)                                                     \
  KERNEL(update_control, const UpdateControlArgs&)                                                 \
  KERNEL(fold, const FoldArgs&)                                                                    \
  KERNEL(check_indices, const IndexCheckArgs&)

#define LOCKSTEP_KERNELS(KERNEL)   \
  LOCKSTEP_PRODUCT_KERNELS(KERNEL) \
  LOCKSTEP_OTHER_KERNELS(KERNEL)
