// The kernels of a GPU. Static.
#pragma once

#include "core/kernels/kernels.h"

namespace lockstep {

const KernelTable& cuda_kernels();  // `isa` names no GPU: the backend fills it

}  // namespace lockstep
