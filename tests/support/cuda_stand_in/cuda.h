// The stand-in's part of the driver's names (cuda_runtime.h beside it).
#pragma once

#include <cstdint>

#include "tests/support/cuda_stand_in/cuda_runtime.h"

enum CUresult { CUDA_SUCCESS };
using CUstream = cudaStream_t;
using CUdeviceptr = unsigned long long;
using cuuint32_t = uint32_t;
constexpr unsigned CU_STREAM_WAIT_VALUE_GEQ = 0;
