// The table of kernels: of each CPU instruction-set level, chosen at run time, and of an accelerator.
// Static tables; the CPU's are filled in core/kernels/table.cpp, a GPU's in core/device/cuda.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep {

struct KernelTable {
  const char* isa;  // "generic", "avx2", "avx512", "sm_90"; which of them give equal bits: bits_of_isa()
  void (*pointwise)(Parallel&, PointwiseOp, const PointwiseArgs&);
  void (*update)(Parallel&, UpdateOp, const PointwiseArgs&);
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
  void (*chunk_norms)(Parallel&, const float* x, int64_t n, double* out);  // fp64 sums of squares by kStateChunk elements
  void (*tree_sums)(Parallel&, const TreeSumsArgs&);
  void (*store)(Parallel&, const StoreArgs&);
  void (*step_outcome)(Parallel&, const StepOutcomeArgs&);
  void (*update_control)(Parallel&, const UpdateControlArgs&);
  void (*check_range)(Parallel&, const RangeArgs&);
};

enum class IsaLevel { kGeneric, kAvx2, kAvx512 };

// What decides the bits of a level's results: the same text for levels whose results are equal. avx2 and avx512 are:
// both have fused multiply-add, every sum has one order whatever the vector width, and nothing is reassociated
// (tests/core/op_bits_test.sh compares every operation). Any other level or GPU stands for itself.
const char* bits_of_isa(const char* isa);
IsaLevel best_isa_level();             // of this CPU
IsaLevel isa_level();                  // in use: the best, or the one that LOCKSTEP_ISA names; chosen once
const KernelTable& kernels(IsaLevel);  // throws where the CPU lacks it
const KernelTable& kernels();          // of isa_level()
// Of the accelerator where `where` is its queue, else of isa_level().
inline const KernelTable& kernels(const Parallel& where) {
  const KernelTable* device = where.device_kernels();
  return device ? *device : kernels();
}

}  // namespace lockstep
