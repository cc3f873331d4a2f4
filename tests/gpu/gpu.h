// The GPU that this program's tests run on: the machine's, or where LOCKSTEP_TEST_FAKE_GPU=1 the one that the CPU
// plays, whose results must be the CPU's to the bit. Plain functions.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/tensor/tensor.h"
#include "tests/support/each_device.h"

namespace lockstep::testing {

// Looks for it, once; false, and `why`, where there is none.
bool find_gpu(std::string* why);
Device gpu_device();
bool gpu_is_fake();
// What LOCKSTEP_TEST_GPU_FAULT plants, to see that scripts/gpu_check finds it: "no nccl", "old nccl", "hang TEST",
// "sticky TEST" (from this test on the GPU that the CPU plays does nothing more), or "".
std::string planted_fault();

// What f gives at `inputs`, and the gradients of all floating ones, on `device`; floating inputs in `dtype`, rounded
// from what they hold. Results as they are kept, gradients in fp32 (fp64 where dtype is).
using Function = std::function<Tensor(const std::vector<Tensor>&)>;
Values with_gradients(const Function& f, const std::vector<Tensor>& inputs, DType dtype, Device device);

// The bound of each comparison with the CPU's result in fp64 on the same rounded inputs: an element of value b may be
// off by scale * (u + 8 sqrt(terms) 2^-24) * (|b| + r), r the root mean square of its tensor; u is the type's unit
// roundoff, half the distance of neighbours (2^-24, 2^-8, 2^-11), and `terms` how many products or values a sum has:
// their roundings add up like a random walk, here with eight times its deviation.
struct Tolerance {
  double terms = 1, scale = 4;
};
void expect_close(const Values& got, const Values& wanted, DType dtype, const Tolerance& tolerance,
                  const std::string& what);

}  // namespace lockstep::testing
