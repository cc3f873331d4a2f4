// The pointwise functors on a grid.
#include "core/device/cuda/grid.h"
#include "core/kernels/pointwise.cpp"
