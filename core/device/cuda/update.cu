// The optimizers' updates on a grid.
#include "core/device/cuda/grid.h"
#include "core/kernels/update.cpp"
