// The table of CPU kernels of one instruction-set level, and the choice of the level at run time.
// Static tables; one per level, filled in core/kernels/table.cpp.
// Knows nothing of devices or tensors.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep {

struct KernelTable {
  const char* isa;  // "generic", "avx2", "avx512": bits are equal within a level
  void (*pointwise)(Parallel&, PointwiseOp, const PointwiseArgs&);
  void (*row)(Parallel&, RowOp, const RowArgs&);
  void (*column_sum)(Parallel&, const ColumnArgs&);
  void (*norm_columns)(Parallel&, const NormColumnsArgs&);
  void (*gather)(Parallel&, const GatherArgs&);
  void (*scatter_add)(Parallel&, const GatherArgs&);
  void (*gemm)(Parallel&, const GemmArgs&);
  void (*conv)(Parallel&, const ConvArgs&);
  void (*conv_backward_input)(Parallel&, const ConvArgs&);   // x receives the gradient, y holds the incoming one
  void (*conv_backward_weight)(Parallel&, const ConvArgs&);  // weight receives the gradient
  void (*max_pool)(Parallel&, const PoolArgs&);
  void (*max_pool_backward)(Parallel&, const PoolArgs&);  // x receives the gradient
  void (*attention)(Parallel&, const AttentionArgs&);
  void (*attention_backward)(Parallel&, const AttentionArgs&);
  void (*initial)(Parallel&, const InitialArgs&);
  void (*tree_add)(Parallel&, float* sum, const float* other, int64_t n);  // sum += other
  void (*chunk_norms)(Parallel&, const float* x, int64_t n, double* out);  // fp64 sums of squares of 64-element chunks
};

enum class IsaLevel { kGeneric, kAvx2, kAvx512 };

IsaLevel best_isa_level();             // of this CPU
IsaLevel isa_level();                  // in use: the best, or the one that LOCKSTEP_ISA names; chosen once
const KernelTable& kernels(IsaLevel);  // throws where the CPU lacks it
const KernelTable& kernels();          // of isa_level()

// Picks by level, for kernel files of other rooms.
template <class Table>
const Table& pick_level(const Table& generic, const Table& avx2, const Table& avx512) {
  switch (isa_level()) {
    case IsaLevel::kGeneric: return generic;
    case IsaLevel::kAvx2: return avx2;
    case IsaLevel::kAvx512: return avx512;
  }
  return generic;
}

}  // namespace lockstep
