// KernelTable: pointers to all kernels (kernel_list.h) of one CPU instruction-set level, or of an accelerator; the
// level is chosen at run time. The tables are static: core/kernels/table.cpp fills those of CPUs,
// core/device/cuda/kernels/kernels.cpp that of GPUs.
#pragma once

#include <span>

#include "core/kernels/args.h"
#include "core/kernels/batch_norm.h"
#include "core/kernels/cell.h"
#include "core/kernels/kernel_list.h"
#include "core/kernels/parallel.h"
#include "core/kernels/pointwise.h"
#include "core/kernels/resample.h"
#include "core/kernels/rows.h"

namespace lockstep {

struct KernelTable {
  const char* isa;  // "generic", "avx2", "avx512", "avx512_bf16", "amx", "sm_90"; bits_of_isa() says which of them give
                    // equal bits
#define LOCKSTEP_POINTER(name, ...) void (*name)(Parallel&, __VA_ARGS__);
  LOCKSTEP_KERNELS(LOCKSTEP_POINTER)
#undef LOCKSTEP_POINTER
};

enum class IsaLevel { kGeneric, kAvx2, kAvx512, kAvx512Bf16, kAmx };
inline constexpr IsaLevel kIsaLevels[] = {IsaLevel::kGeneric, IsaLevel::kAvx2, IsaLevel::kAvx512, IsaLevel::kAvx512Bf16,
                                          IsaLevel::kAmx};

// The same text for levels whose results are bit-identical. All but generic are: they have fused multiply-add, the
// order of every sum is independent of the vector width, and nothing is reassociated (tests/core/ops/op_bits_test.sh
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
