#include "core/device/cuda/kernels.h"

#include "core/device/cuda/blas.h"
#include "core/device/cuda/dnn.h"

namespace lockstep {

inline namespace LOCKSTEP_ISA {
void pointwise(Parallel&, PointwiseOp, const PointwiseArgs&);
void update(Parallel&, UpdateOp, const PointwiseArgs&);
void row(Parallel&, RowOp, const RowArgs&);
void column_sum(Parallel&, const ColumnArgs&);
void norm_columns(Parallel&, const NormColumnsArgs&);
void gather(Parallel&, const GatherArgs&);
void scatter_add(Parallel&, const GatherArgs&);
void max_pool(Parallel&, const PoolArgs&);
void max_pool_backward(Parallel&, const PoolArgs&);
void initial(Parallel&, const InitialArgs&);
void tree_add(Parallel&, float*, const float*, int64_t);
void chunk_norms(Parallel&, const float*, int64_t, double*);
void tree_sums(Parallel&, const TreeSumsArgs&);
void store(Parallel&, const StoreArgs&);
void check_range(Parallel&, const RangeArgs&);
}  // namespace LOCKSTEP_ISA

const KernelTable& cuda_kernels() {
  static const KernelTable table = {
      "cuda",
      pointwise,
      update,
      row,
      column_sum,
      norm_columns,
      gather,
      scatter_add,
      cuda::gemm,
      cuda::conv,
      cuda::conv_backward_input,
      cuda::conv_backward_weight,
      max_pool,
      max_pool_backward,
      cuda::attention,
      cuda::attention_backward,
      initial,
      tree_add,
      chunk_norms,
      tree_sums,
      store,
      check_range,
  };
  return table;
}

}  // namespace lockstep
