// The device without bytes: every operation and a whole step run on it, count what the CPU takes, and touch no memory.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <set>

#include "core/device/allocator.h"
#include "core/models/convnet.h"
#include "core/models/gpt.h"
#include "core/models/llama.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/core/ops/op_cases.h"

namespace lockstep::meta_test {
namespace {

using testing::OpCase;

// The figures of `work` alone, on the CPU or on a meta device of its own.
AllocatorStats figures(bool meta, const std::function<void()>& work) {
  const Device device = meta ? new_meta_device() : Device{};
  Stream stream(device, Stream::Mode::kInline);
  WithStream with(stream);
  reset_peak_bytes(device);
  const AllocatorStats before = allocator_stats(device);
  work();
  AllocatorStats after = allocator_stats(device);
  after.bytes_in_use -= before.bytes_in_use;
  after.peak_bytes -= before.bytes_in_use;
  for (size_t i = 0; i < before.by_use.size(); ++i) {
    after.by_use[i] -= before.by_use[i];
    after.peak_by_use[i] -= before.by_use[i];
  }
  const auto scratch = static_cast<size_t>(MemoryUse::kScratch);  // of kernels, which do not run on a meta device
  after.peak_bytes -= after.peak_by_use[scratch];
  after.bytes_in_use -= after.by_use[scratch];
  after.by_use[scratch] = after.peak_by_use[scratch] = 0;
  return after;
}

void expect_same_figures(const std::function<void()>& work) {
  figures(false, work);  // scratch then stays with the thread
  const AllocatorStats real = figures(false, work), counted = figures(true, work);
  EXPECT_EQ(counted.bytes_in_use, real.bytes_in_use);
  EXPECT_EQ(counted.peak_bytes, real.peak_bytes);
  EXPECT_EQ(census_text(counted.by_use), census_text(real.by_use));
  EXPECT_EQ(census_text(counted.peak_by_use), census_text(real.peak_by_use));
  EXPECT_GT(real.peak_bytes, 0);
}

class EachOpOnMeta : public ::testing::TestWithParam<OpCase> {};

TEST_P(EachOpOnMeta, CountsWhatTheCpuTakes) {
  for (DType dtype : {DType::kFloat32, DType::kBFloat16})
    expect_same_figures([&] {
      std::vector<Tensor> inputs;
      for (const Tensor& t : GetParam().inputs) {
        inputs.push_back(Tensor::empty(t.shape(), is_floating(t.dtype()) ? dtype : t.dtype()));
        raw::copy(inputs.back(), t);
        if (is_floating(t.dtype())) require_grad(inputs.back());
      }
      Tensor y = GetParam().f(inputs);
      backward(sum(mul(y, Tensor::full(y.shape(), 0.75, y.dtype()))));
      for (const Tensor& t : inputs)
        if (is_floating(t.dtype())) {
          EXPECT_EQ(grad_of(t).shape(), t.shape());
        }
    });
}

INSTANTIATE_TEST_SUITE_P(Ops, EachOpOnMeta, ::testing::ValuesIn(testing::op_cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Meta, AStepOfAModelCountsWhatTheCpuTakes) {
  const RandomKey key{1, 0, std::make_shared<std::vector<int64_t>>(std::vector<int64_t>{0, 1, 2})};
  expect_same_figures([&] {
    WithRandom random(key);
    Gpt model({.layers = 2, .heads = 2, .width = 24, .dropout = 0.1}, {{10}, 17});
    place_parameters(model, 1);
    const Tensor tokens = Tensor::of(std::vector<int32_t>(30, 3), {3, 10});
    backward(cross_entropy(model(tokens), tokens));
  });
  expect_same_figures([&] {
    Llama model({.layers = 2, .heads = 4, .width = 24, .kv_heads = 2, .window = 4, .qkv_bias = true, .qk_norm = true},
                {{10}, 17});
    place_parameters(model, 1);
    const Tensor tokens = Tensor::of(std::vector<int32_t>(30, 3), {3, 10});
    backward(cross_entropy(model(tokens), tokens));
  });
  expect_same_figures([&] {
    WithRandom random(key);
    Convnet model({.channels = {3, 5}, .hidden = 7, .dropout = 0.2}, {{9, 9, 1}, 4});
    place_parameters(model, 1);
    const Tensor target = Tensor::of(std::vector<int32_t>{0, 1, 2}, {3});
    backward(cross_entropy(model(Tensor::zeros({3, 9, 9, 1})), target));
  });
}

TEST(Meta, AModelLargerThanAnyMemoryIsOnlyCounted) {
  const AllocatorStats before = allocator_stats();
  figures(true, [&] {
    Gpt model({.layers = 96, .heads = 96, .width = 12288}, {{2048}, 50304});  // 175e9 parameters
    place_parameters(model, 1);
    const Device device = current_device();
    EXPECT_GT(allocator_stats(device).bytes_in_use, int64_t(4) * 170'000'000'000);
    EXPECT_EQ(allocator_stats(device).bytes_reserved, 0);
    {
      const Tensor tokens = Tensor::zeros({1, 2048}, DType::kInt32);
      backward(cross_entropy(model(tokens), tokens));
    }
    EXPECT_GT(allocator_stats(device).bytes_in_use, int64_t(8) * 170'000'000'000) << "and its gradients";
  });
  EXPECT_EQ(allocator_stats().bytes_in_use, before.bytes_in_use) << "the process's own counters are not touched";
  EXPECT_EQ(allocator_stats().peak_bytes, before.peak_bytes);
}

TEST(Meta, AddressesAreAlignedAndNeverTheSame) {
  const Device device = new_meta_device();
  std::set<void*> seen{nullptr};
  for (int i = 0; i < 100; ++i) {
    void* p = allocate_bytes(i % 7 * 1000, device);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 256, 0u);
    EXPECT_TRUE(seen.insert(p).second);
    free_bytes(p, device);
  }
  EXPECT_EQ(allocator_stats(device).bytes_in_use, 0);
  EXPECT_EQ(allocator_stats(device).peak_bytes, 6144);
}

TEST(Meta, EachDeviceCountsItsOwn) {
  const Device a = new_meta_device(), b = new_meta_device();
  EXPECT_FALSE(a == b);
  void* p = allocate_bytes(1000, a);
  EXPECT_EQ(allocator_stats(a).bytes_in_use, 1024);
  EXPECT_EQ(allocator_stats(b).bytes_in_use, 0);
  free_bytes(p, a);
}

TEST(Meta, StreamsRunNothingAndAreAlwaysDone) {
  Stream stream(new_meta_device(), Stream::Mode::kThread);
  stream.enqueue([](Parallel&) { FAIL() << "a task ran"; });
  EXPECT_TRUE(stream.record().done());
  EXPECT_TRUE(stream.synchronize(Seconds(0)));
  Stream other({}, Stream::Mode::kThread);
  std::atomic<bool> ran = false;
  other.enqueue([&](Parallel&) { ran = true; });
  stream.wait(other.record());
  EXPECT_TRUE(ran) << "it still waits for streams that do run";
}

TEST(Meta, ReadingIsZerosOrAClearError) {
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  WithStream with(stream);
  const Tensor t = Tensor::of(std::vector<float>{3, 4}, {2});
  EXPECT_EQ(t.to_vector(), (std::vector<double>{0, 0}));
  EXPECT_EQ(Tensor::full({1}, 5).item(), 0);
  EXPECT_TRUE(raw::all_finite(t));
  for (const auto& read : {std::function<void()>([&] { t.values<float>(); }), {[&] { t.mutable_values<float>(); }}}) {
    try {
      read();
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInternal);
      EXPECT_NE(std::string(e.what()).find("fp32[2] on meta"), std::string::npos) << e.what();
    }
  }
}

TEST(Census, CountsByUseOnEveryDevice) {
  for (const Device& device : {Device{}, new_meta_device()}) {
    SCOPED_TRACE(to_text(device));
    Stream stream(device, Stream::Mode::kInline);
    WithStream with(stream);
    reset_peak_bytes(device);
    const AllocatorStats before = allocator_stats(device);
    auto more = [&](MemoryUse use) { return allocator_stats(device).in_use(use) - before.in_use(use); };
    Tensor moments;
    {
      WithMemoryUse use(MemoryUse::kMoments);
      moments = Tensor::empty({64});
      {
        WithMemoryUse inner(MemoryUse::kGathered);
        Tensor gathered = Tensor::empty({128});
        EXPECT_EQ(more(MemoryUse::kGathered), 512);
      }
    }
    Tensor activations = Tensor::empty({1});
    EXPECT_EQ(more(MemoryUse::kMoments), 256);
    EXPECT_EQ(more(MemoryUse::kGathered), 0);
    EXPECT_EQ(more(MemoryUse::kActivations), 256);
    moments.storage()->release();
    EXPECT_EQ(more(MemoryUse::kMoments), 0) << "whatever is in force when it is freed";
    const AllocatorStats now = allocator_stats(device);
    EXPECT_EQ(std::accumulate(now.by_use.begin(), now.by_use.end(), int64_t(0)), now.bytes_in_use);
    EXPECT_EQ(now.peak_of(MemoryUse::kGathered) - before.in_use(MemoryUse::kGathered), 512) << "of each by itself";
  }
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // their allocators end the process instead
TEST(Census, OutOfMemorySaysWhatHoldsIt) {
  WithMemoryUse use(MemoryUse::kMoments);
  const Tensor held = Tensor::empty({1 << 20});
  try {
    Tensor::empty({int64_t(1) << 55});
    FAIL();
  } catch (const Error& e) {
    const std::string text = e.what();
    for (const char* part : {"144115188075855872 bytes asked for (moments)", "in use (", "moments "})
      EXPECT_NE(text.find(part), std::string::npos) << text;
  }
}
#endif

}  // namespace
}  // namespace lockstep::meta_test
