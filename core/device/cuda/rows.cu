// The row-wise functors on a grid.
#include "core/device/cuda/grid.h"
#include "core/kernels/rows.cpp"
