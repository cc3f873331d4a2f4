// Convolutions whose channels fall into groups, for what cuDNN does not take: an element of the result a thread,
// without memory for patches. Sums in fp32, in fp64 where operands are. Stateless.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep::cuda {

// `queue`: a CudaQueue.
void group_conv(Parallel& queue, const ConvArgs& a);
void group_conv_backward_input(Parallel& queue, const ConvArgs& a);
void group_conv_backward_weight(Parallel& queue, const ConvArgs& a);

}  // namespace lockstep::cuda
