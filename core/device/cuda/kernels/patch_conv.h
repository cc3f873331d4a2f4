// Convolution as matrix products over patches, for what cuDNN does not take: fp64, operands whose types differ, shapes
// without a deterministic algorithm. Those with groups are passed on to group_conv.h. A few images at a time, as their
// patches are many times their size; weight gradients add images in order. Stateless.
#pragma once

#include "core/kernels/args.h"
#include "core/kernels/parallel.h"

namespace lockstep::cuda {

// `queue`: a CudaQueue; the products are those of its table of kernels.
void patch_conv(Parallel& queue, const ConvArgs& a);
void patch_conv_backward_input(Parallel& queue, const ConvArgs& a);
void patch_conv_backward_weight(Parallel& queue, const ConvArgs& a);

}  // namespace lockstep::cuda
