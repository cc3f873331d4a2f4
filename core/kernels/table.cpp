// The kernels of one instruction-set level, gathered in its table.

#ifndef LOCKSTEP_ISA
#define LOCKSTEP_ISA host
#endif
#define LOCKSTEP_TEXT_OF(x) #x
#define LOCKSTEP_TEXT(x) LOCKSTEP_TEXT_OF(x)

#include "core/kernels/entries.h"
#include "core/kernels/kernels.h"

namespace lockstep {

void check_indices_here(Parallel&, const IndexCheckArgs&);  // core/kernels/index_check.h, whose strings must stay out

inline namespace LOCKSTEP_ISA {

void check_indices(Parallel& parallel, const IndexCheckArgs& a) { check_indices_here(parallel, a); }

#define LOCKSTEP_MEMBER(name, ...) .name = name,
extern const KernelTable table;
const KernelTable table = {.isa = LOCKSTEP_TEXT(LOCKSTEP_ISA), LOCKSTEP_KERNELS(LOCKSTEP_MEMBER)};
#undef LOCKSTEP_MEMBER

}  // namespace LOCKSTEP_ISA
}  // namespace lockstep
