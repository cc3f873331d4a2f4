#include "core/device/cuda/kernels.h"

#include "core/device/cuda/blas.h"
#include "core/device/cuda/dnn.h"
#include "core/kernels/entries.h"

namespace lockstep {

inline namespace LOCKSTEP_ISA {
void check_range(Parallel&, const RangeArgs&);
}

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
      step_outcome,
      update_control,
      check_range,
  };
  return table;
}

}  // namespace lockstep
