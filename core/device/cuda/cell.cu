// Recurrent cells on a grid.
#include "core/device/cuda/grid.h"
#include "core/kernels/cell.cpp"
