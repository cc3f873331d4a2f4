#include "core/device/cuda/kernels/kernels.h"

#include "core/device/cuda/kernels/cross_entropy.h"
#include "core/device/cuda/libraries/blas.h"
#include "core/device/cuda/libraries/dnn.h"
#include "core/device/cuda/libraries/recurrent.h"
#include "core/kernels/entries.h"

namespace lockstep {

namespace {
void row_on_grid(Parallel& where, RowOp op, const RowArgs& a) {
  if (!cuda::cross_entropy(where, op, a)) row(where, op, a);
}
}  // namespace

const KernelTable& cuda_kernels() {
// In place of the kernels of their names: the libraries', and rows that may take a whole grid.
#define LOCKSTEP_USING(name, ...) using cuda::name;
#define LOCKSTEP_MEMBER(name, ...) .name = name,
  LOCKSTEP_PRODUCT_KERNELS(LOCKSTEP_USING)
  constexpr auto row = row_on_grid;
  static const KernelTable table = {.isa = "cuda", LOCKSTEP_KERNELS(LOCKSTEP_MEMBER)};
#undef LOCKSTEP_MEMBER
#undef LOCKSTEP_USING
  return table;
}

}  // namespace lockstep
