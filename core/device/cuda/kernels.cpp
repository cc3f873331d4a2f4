#include "core/device/cuda/kernels.h"

#include "core/device/cuda/blas.h"
#include "core/device/cuda/cross_entropy.h"
#include "core/device/cuda/dnn.h"
#include "core/kernels/entries.h"

namespace lockstep {

inline namespace LOCKSTEP_ISA {
void check_indices(Parallel&, const IndexCheckArgs&);
}

namespace {
void row_on_grid(Parallel& where, RowOp op, const RowArgs& a) {
  if (!cuda::cross_entropy(where, op, a)) row(where, op, a);
}
}  // namespace

const KernelTable& cuda_kernels() {
  static const KernelTable table = {
      .isa = "cuda",
      .pointwise = pointwise,
      .update = update,
      .row = row_on_grid,
      .column_sum = column_sum,
      .norm_columns = norm_columns,
      .channel_sums = channel_sums,
      .batch_norm = batch_norm,
      .cell = cell,
      .gather = gather,
      .scatter_add = scatter_add,
      .gemm = cuda::gemm,
      .conv = cuda::conv,
      .conv_backward_input = cuda::conv_backward_input,
      .conv_backward_weight = cuda::conv_backward_weight,
      .max_pool = max_pool,
      .max_pool_backward = max_pool_backward,
      .resample = resample,
      .resample_backward = resample_backward,
      .rotary = rotary,
      .attention = cuda::attention,
      .attention_backward = cuda::attention_backward,
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
  return table;
}

}  // namespace lockstep
