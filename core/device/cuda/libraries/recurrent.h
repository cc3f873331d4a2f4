// Recurrent layers on a GPU: cuBLAS's products and the cells of a grid, step by step. Plain functions.
#pragma once

#include "core/kernels/cell.h"
#include "core/kernels/parallel.h"

namespace lockstep::cuda {

void recurrent(Parallel& queue, const RecurrentArgs& a);

}  // namespace lockstep::cuda
