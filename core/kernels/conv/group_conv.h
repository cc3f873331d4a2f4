// Convolutions whose channels fall into groups, or whose taps lie apart (dilation), on a CPU. Plain functions, compiled
// once per instruction-set level.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep::inline LOCKSTEP_ISA {

inline bool is_spread(const ConvArgs& a) { return a.groups > 1 || a.dilation > 1; }

// As KernelTable::conv, conv_backward_input and conv_backward_weight.
void group_conv(Parallel& parallel, const ConvArgs& a);
void group_conv_backward_input(Parallel& parallel, const ConvArgs& a);
void group_conv_backward_weight(Parallel& parallel, const ConvArgs& a);

}  // namespace lockstep::inline LOCKSTEP_ISA
