// The optimizers' updates on a grid.
#include "core/device/cuda/kernels/pointwise_grid.h"
#include "core/kernels/update.cpp"
