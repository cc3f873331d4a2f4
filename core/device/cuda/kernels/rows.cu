// The row-wise functors on a grid.
#include "core/device/cuda/kernels/row_grid.h"
#include "core/kernels/rows.cpp"
