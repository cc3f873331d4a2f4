// The kernels of a GPU. Static. Knows nothing of devices: a queue comes with each call.
#pragma once

#include "core/kernels/kernels.h"

namespace lockstep {

const KernelTable& cuda_kernels();  // `isa` names no GPU: the backend fills it

}  // namespace lockstep
