// The kernels of one instruction-set level, or of a GPU, by the names under which tables take them. Defined in the
// level's own namespace.
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

namespace lockstep::inline LOCKSTEP_ISA {

#define LOCKSTEP_ENTRY(name, ...) void name(Parallel&, __VA_ARGS__);
LOCKSTEP_KERNELS(LOCKSTEP_ENTRY)

}  // namespace lockstep::inline LOCKSTEP_ISA

// `passes`: the level whose kernels other than products this one uses.
#if defined(LOCKSTEP_TILES)
namespace lockstep::avx512 {
LOCKSTEP_OTHER_KERNELS(LOCKSTEP_ENTRY)
}
namespace lockstep::inline LOCKSTEP_ISA {
namespace passes = lockstep::avx512;
}
#else
namespace lockstep::inline LOCKSTEP_ISA {
namespace passes = lockstep::LOCKSTEP_ISA;
}
#endif
#undef LOCKSTEP_ENTRY
