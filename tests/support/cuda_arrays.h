// What tests of CUDA's own kernels share: operands in the host's memory, queues of a stand-in for CUDA, and attention
// forward and backward by any two kernels. Plain functions.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "core/device/cuda/kernels/kernels.h"
#include "core/device/cuda/runtime/queue.h"
#include "core/kernels/stage.h"
#include "tests/support/cuda_scratch.h"

namespace lockstep::testing {

// Elements of one type, 64 bytes aligned.
class Array {
 public:
  Array(DType dtype, int64_t n) : dtype_(dtype), n_(n), bytes_(static_cast<size_t>(n * size_of(dtype)) + 64) {}
  Array(std::mt19937& random, DType dtype, int64_t n) : Array(dtype, n) {
    std::normal_distribution<double> normal;
    for (int64_t i = 0; i < n; ++i) store_element<double>(data(), dtype, i, normal(random));
  }
  void* data() { return bytes_.data() + (64 - reinterpret_cast<uintptr_t>(bytes_.data()) % 64) % 64; }
  DType dtype() const { return dtype_; }
  std::vector<double> values() {
    std::vector<double> out;
    for (int64_t i = 0; i < n_; ++i) out.push_back(load_element<double>(data(), dtype_, i));
    return out;
  }

 private:
  DType dtype_;
  int64_t n_;
  std::vector<char> bytes_;
};

inline std::unique_ptr<CudaQueue> make_queue(int processors) {
  return std::make_unique<CudaQueue>(std::make_shared<CudaEventPool>(0), cuda_kernels(), kCudaScratch, processors,
                                     false);
}

// Relative to the largest: sums cancel.
inline void expect_near(const char* what, std::vector<double> actual, std::vector<double> expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  double largest = 1e-30;
  for (double v : expected) largest = std::max(largest, std::abs(v));
  for (size_t i = 0; i < actual.size(); ++i)
    ASSERT_NEAR(actual[i], expected[i], tolerance * largest) << what << ", element " << i;
}

inline double tolerance_of(DType dtype) {
  switch (dtype) {
    case DType::kBFloat16: return 0x1p-7;  // a rounding that goes the other way
    case DType::kFloat16: return 0x1p-10;
    case DType::kFloat32: return 2e-6;
    default: return 1e-14;
  }
}

struct Attended {
  std::vector<double> y, lse, dqkv;
};

template <class Kernel, class Backward>
Attended attend(Parallel& where, Kernel forward, Backward backward, AttentionArgs a, uint32_t seed) {
  std::mt19937 random(seed);
  const int64_t n = a.batch * a.time * a.heads * a.dim, of_keys = a.batch * a.key_time() * a.kv_heads * a.dim;
  const int64_t packed = n + 2 * of_keys;
  Array qkv(random, a.dtype, packed), dy(random, a.dtype, n), y(a.dtype, n), dqkv(a.dtype, packed);
  Array lse(a.dtype == DType::kFloat64 ? DType::kFloat64 : DType::kFloat32, a.batch * a.heads * a.time);
  if (a.key_time() == a.time) a.unpack(qkv.data(), dqkv.data());
  const auto part = [&](Array& of, int64_t first, int64_t heads) {
    return HeadRows{static_cast<char*>(of.data()) + first * size_of(a.dtype), heads * a.dim};
  };
  if (a.key_time() != a.time) {
    a.q = part(qkv, 0, a.heads), a.k = part(qkv, n, a.kv_heads), a.v = part(qkv, n + of_keys, a.kv_heads);
    a.dq = part(dqkv, 0, a.heads), a.dk = part(dqkv, n, a.kv_heads), a.dv = part(dqkv, n + of_keys, a.kv_heads);
  }
  a.y = y.data(), a.dy = dy.data(), a.lse = lse.data();
  forward(where, a);
  if (!a.starts) backward(where, a);
  return {y.values(), lse.values(), dqkv.values()};
}

}  // namespace lockstep::testing
