// The list of kernels: every table has each of them, and no kernel goes without a test of its gradients, types and
// devices, as tests/core/ops/op_cases.cpp gives one to each operation.
#include <gtest/gtest.h>

#include <algorithm>

#include "core/kernels/kernels.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/core/ops/op_cases.h"
#include "tests/support/fake_gpu.h"

namespace lockstep::kernel_list_test {
namespace {

TEST(KernelList, EachLevelHasAllAndThoseWithInstructionsForBf16TheirOwnProducts) {
  for (IsaLevel level : kIsaLevels) {
    if (!has_isa_level(level)) continue;
    const KernelTable& table = kernels(level);
#define LOCKSTEP_IS_THERE(name, ...) EXPECT_NE(table.name, nullptr) << table.isa << ": " #name;
    LOCKSTEP_KERNELS(LOCKSTEP_IS_THERE)
#undef LOCKSTEP_IS_THERE
    if (level != IsaLevel::kAvx512Bf16 && level != IsaLevel::kAmx) continue;
    const KernelTable& below = kernels(IsaLevel::kAvx512);
#define LOCKSTEP_IS_OWN(name, ...) EXPECT_NE(table.name, below.name) << table.isa << ": " #name;
    LOCKSTEP_PRODUCT_KERNELS(LOCKSTEP_IS_OWN)
#undef LOCKSTEP_IS_OWN
#define LOCKSTEP_IS_SHARED(name, ...) EXPECT_EQ(table.name, below.name) << table.isa << ": " #name;
    LOCKSTEP_OTHER_KERNELS(LOCKSTEP_IS_SHARED)
#undef LOCKSTEP_IS_SHARED
  }
}

TEST(KernelList, EachKernelOfAnOperationHasACase) {
  Stream stream(testing::fake_gpu(), Stream::Mode::kThread);
  const WithStream with(stream);
  for (const testing::OpCase& c : testing::op_cases()) {
    std::vector<Tensor> inputs;
    for (const Tensor& t : c.inputs) {
      inputs.push_back(raw::to_device(is_floating(t.dtype()) ? raw::cast(t, DType::kFloat32) : t, stream.device()));
      if (is_floating(t.dtype())) require_grad(inputs.back());
    }
    backward(sum(c.f(inputs)));
  }
  stream.synchronize();
  // What no operation is made of: initial values, updates, and what a step does with its sums; cells are a part of
  // `recurrent`.
  std::vector<std::string> others{"cell",           "chunk_norms", "decode_blocks", "decode_weight", "encode_blocks",
                                  "fold",           "initial",     "step_outcome",  "store",         "tree_add",
                                  "update_control", "tree_sums",   "update"};
  std::vector<std::string> without = testing::fake_gpu_kernels_not_run();
  std::sort(others.begin(), others.end());
  std::sort(without.begin(), without.end());
  EXPECT_EQ(without, others)
      << "tests/core/ops/op_cases.cpp has no case that runs a kernel named here first, or this list "
         "names one that cases run";
}

}  // namespace
}  // namespace lockstep::kernel_list_test
