// Batch norm in passes over x [rows, channels]: sums of each channel (ChannelSumsArgs in core/kernels/args.h), and the
// pointwise passes here, whose operands broadcast over the rows where they are [channels]. Ioffe and Szegedy, "Batch
// Normalization" (2015). Plain values.
#pragma once

#include <cstdint>

namespace lockstep {

// Inputs -> outputs. y = x scale + shift normalises; s0 and s1 are the scalars.
enum class BatchNormPass : uint8_t {
  // mean, m2, weight, bias -> rstd, scale, shift, unbiased variance; m2: sum of the squared distances from the mean of
  // s0 values, s1 epsilon.
  kCoefficients,
  kForward,         // x, scale, shift -> y
  kForwardRelu,     // the same, then relu
  kForwardAdd,      // x, scale, shift, z -> y + z
  kForwardAddRelu,  // the same, then relu
  // sum of g, sum of g (x - mean) rstd, scale, rstd -> slope, offset; s0: 1 / number of values, or 0 where mean and
  // variance do not depend on x.
  kGradientCoefficients,
  kBackward,      // g, x, scale, mean, slope, offset -> g scale + (x - mean) slope + offset
  kBackwardRelu,  // g, x, scale, shift, mean, slope, offset -> the same of g where y > 0, and else of 0
};

}  // namespace lockstep
