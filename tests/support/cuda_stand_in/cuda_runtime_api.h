// The stand-in's second name (cuda_runtime.h beside it).
#pragma once

#include "tests/support/cuda_stand_in/cuda_runtime.h"
