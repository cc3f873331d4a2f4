// The pointwise functors on a grid.
#include "core/device/cuda/kernels/pointwise_grid.h"
#include "core/kernels/pointwise.cpp"
