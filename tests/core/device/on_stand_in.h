// A kernel of a GPU, its very text, on a stand-in for CUDA, held against the CPU's generic level: what tests of kernels
// share. Plain functions.
#pragma once

#include <gtest/gtest.h>
#include <stdexcept>

#include <cmath>
#include <cstring>
#include <functional>

#include "core/device/cuda/kernels/kernels.h"
#include "core/device/cuda/kernels/launch.h"
#include "core/device/thread_pool.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/cuda_arrays.h"
#include "tests/support/cuda_stand_in/races.h"
#include "tests/support/gradcheck.h"
#include "tests/support/thorough.h"

namespace lockstep::testing {

using Values = std::vector<std::vector<double>>;
using Work = std::function<Values(const KernelTable&, Parallel&)>;

constexpr std::initializer_list<DType> kFloats = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};

// Bits, except that one NaN is as good as another.
inline bool same_bits(double a, double b) {
  return std::memcmp(&a, &b, sizeof a) == 0 || (std::isnan(a) && std::isnan(b));
}

inline void expect_same(const Values& expected, const Values& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t t = 0; t < expected.size(); ++t) {
    ASSERT_EQ(expected[t].size(), got[t].size()) << "result " << t;
    for (size_t i = 0; i < expected[t].size(); ++i)
      ASSERT_TRUE(same_bits(expected[t][i], got[t][i]))
          << "result " << t << ", element " << i << ": " << got[t][i] << ", expected " << expected[t][i];
  }
}

// On one multiprocessor, whose results those of three and of many must equal. The race detector takes one number only
// in quick tests.
inline Values on_gpu(const Work& work) {
  if (cuda_stand_in::races::enabled() && !thorough()) return work(cuda_kernels(), *make_queue(3));
  Values first = work(cuda_kernels(), *make_queue(1));
  for (int processors : {3, 200}) {
    SCOPED_TRACE(str(processors, " multiprocessors"));
    expect_same(first, work(cuda_kernels(), *make_queue(processors)));
  }
  return first;
}
inline Values on_cpu(const Work& work) {
  ThreadPool pool(1);
  return work(kernels(IsaLevel::kGeneric), pool);
}

inline void expect_equal(const Work& work) { expect_same(on_cpu(work), on_gpu(work)); }

// Differences up to `tolerance` of each result's largest element.
inline void expect_near(const Work& work, double tolerance) {
  const Values expected = on_cpu(work), got = on_gpu(work);
  ASSERT_EQ(expected.size(), got.size());
  for (size_t t = 0; t < expected.size(); ++t) {
    ASSERT_EQ(expected[t].size(), got[t].size()) << "result " << t;
    double most = 1e-30;
    for (double v : expected[t])
      if (std::isfinite(v)) most = std::max(most, std::abs(v));
    for (size_t i = 0; i < expected[t].size(); ++i)
      ASSERT_TRUE(same_bits(expected[t][i], got[t][i]) || std::abs(expected[t][i] - got[t][i]) <= tolerance * most)
          << "result " << t << ", element " << i << ": " << got[t][i] << ", expected " << expected[t][i];
  }
}

// Two roundings of the type, as sums in another order may fall to either side.
inline double rounding_of(DType t) {
  switch (t) {
    case DType::kFloat32: return 0x1p-21;
    case DType::kBFloat16: return 0x1p-8;
    case DType::kFloat16: return 0x1p-11;
    default: return 0x1p-48;
  }
}

inline PointwiseArgs args_of(const Tensor& out, const std::vector<Tensor>& ins) {
  switch (ins.size()) {
    case 0: return raw::pointwise_args({out}, {});
    case 1: return raw::pointwise_args({out}, {ins[0]});
    case 2: return raw::pointwise_args({out}, {ins[0], ins[1]});
    case 3: return raw::pointwise_args({out}, {ins[0], ins[1], ins[2]});
    case 4: return raw::pointwise_args({out}, {ins[0], ins[1], ins[2], ins[3]});
    case 5: return raw::pointwise_args({out}, {ins[0], ins[1], ins[2], ins[3], ins[4]});
    case 6: return raw::pointwise_args({out}, {ins[0], ins[1], ins[2], ins[3], ins[4], ins[5]});
    case 7: return raw::pointwise_args({out}, {ins[0], ins[1], ins[2], ins[3], ins[4], ins[5], ins[6]});
    default: throw std::logic_error("args_of: so many operands");
  }
}

}  // namespace lockstep::testing
