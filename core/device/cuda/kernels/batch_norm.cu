// The passes of batch norm on a grid.
#include "core/device/cuda/kernels/pointwise_grid.h"
#include "core/kernels/batch_norm.cpp"
