// KernelTable: pointers to all kernels of one CPU instruction-set level, or of an accelerator; the level is chosen at
// run time. The tables are static: core/kernels/table.cpp fills those of CPUs, core/device/cuda/kernels.cpp that of
// GPUs.
#pragma once

#include <span>

#include "core/kernels/args.h"
#include "core/kernels/batch_norm.h"
#include "core/kernels/cell.h"
#include "core/kernels/parallel.h"
#include "core/kernels/pointwise.h"
#include "core/kernels/resample.h"
#include "core/kernels/rows.h"

namespace lockstep {

struct KernelTable {
  const char* isa;  // "generic", "avx2", "avx512", "avx512_bf16", "amx", "sm_90"; bits_of_isa() says which of them give
                    // equal bits
  void (*pointwise)(Parallel&, PointwiseOp, const PointwiseArgs&);
  void (*update)(Parallel&, UpdateOp, std::span<const PointwiseArgs> parts);  // on a GPU one launch for many
  void (*row)(Parallel&, RowOp, const RowArgs&);
  void (*column_sum)(Parallel&, const ColumnArgs&);
  void (*norm_columns)(Parallel&, const NormColumnsArgs&);
  void (*channel_sums)(Parallel&, const ChannelSumsArgs&);
  void (*batch_norm)(Parallel&, BatchNormPass, const PointwiseArgs&);
  void (*cell)(Parallel&, CellPass, const PointwiseArgs&);
  void (*gather)(Parallel&, const GatherArgs&);
  void (*scatter_add)(Parallel&, const GatherArgs&);
  void (*gemm)(Parallel&, const GemmArgs&);
  void (*conv)(Parallel&, const ConvArgs&);
  void (*conv_backward_input)(Parallel&, const ConvArgs&);   // x receives the gradient, y holds the incoming one
  void (*conv_backward_weight)(Parallel&, const ConvArgs&);  // weight receives the gradient
  void (*max_pool)(Parallel&, const PoolArgs&);
  void (*max_pool_backward)(Parallel&, const PoolArgs&);  // x receives the gradient
  void (*resample)(Parallel&, const ResampleArgs&);
  void (*resample_backward)(Parallel&, const ResampleArgs&);  // x receives the gradient
  void (*rotary)(Parallel&, const RotaryArgs&);
  void (*attention)(Parallel&, const AttentionArgs&);
  void (*attention_backward)(Parallel&, const AttentionArgs&);
  void (*initial)(Parallel&, const InitialArgs&);
  void (*tree_add)(Parallel&, float* sum, const float* other, int64_t n);  // sum += other
  void (*chunk_norms)(Parallel&, const float* x, int64_t n,
                      double* out);  // fp64 sums of squares by kStateChunk elements
  void (*tree_sums)(Parallel&, const TreeSumsArgs&);
  void (*encode_blocks)(Parallel&, const BlockCodesArgs&);  // values -> codes, scales
  void (*decode_blocks)(Parallel&, const BlockCodesArgs&);  // codes, scales -> values
  void (*store)(Parallel&, const StoreArgs&);
  void (*step_outcome)(Parallel&, const StepOutcomeArgs&);
  void (*update_control)(Parallel&, const UpdateControlArgs&);
  void (*fold)(Parallel&, const FoldArgs&);
  void (*check_indices)(Parallel&, const IndexCheckArgs&);
};

enum class IsaLevel { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmx };
inline constexpr IsaLevel kIsaLevels[] = {IsaLevel::kGeneric, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAvx512Bf16,
                                          IsaLevel::kAmx};

// The same text for levels whose results are bit-identical. All but generic are: they have fused multiply-add, the
// order of every sum is independent of the vector width, and nothing is reassociated (tests/core/op_bits_test.sh
// compares all operations). For any other level or GPU its own name.
const char* bits_of_isa(const char* isa);
bool has_isa_level(IsaLevel);          // this CPU has it, and it is of use there
IsaLevel best_isa_level();             // of this CPU
IsaLevel isa_level();                  // in use: the environment variable LOCKSTEP_ISA, or the best; chosen once
const KernelTable& kernels(IsaLevel);  // throws ExitCode::kConfig if the CPU lacks it
const KernelTable& kernels();          // of isa_level()
// The accelerator's table if `where` is its queue, else that of isa_level().
inline const KernelTable& kernels(const Parallel& where) {
  const KernelTable* device = where.device_kernels();
  return device ? *device : kernels();
}

}  // namespace lockstep
