// A GPU's memory, streams and the kernels that no operation of a model calls: sums of trees, norms of chunks, initial
// values.
#include <cmath>
#include <thread>

#include "core/base/partition.h"
#include "core/base/state_chunk.h"
#include "core/device/allocator.h"
#include "core/kernels/kernels.h"
#include "core/nn/init.h"
#include "core/ops/ops.h"
#include "core/state/weight_coder.h"
#include "core/tensor/raw_ops.h"
#include "tests/gpu/gpu.h"
#include "tests/support/files.h"
#include "tests/support/gradcheck.h"

namespace lockstep {
namespace {

using namespace testing;

// The bits of the digest and of the gradient's norm rest on these.
TEST(Kernels, ThatDigestsAndNormsRestOnHaveTheCpusBits) {
  for (int64_t n : {1, 64, 65, 1000, 100'003}) {
    const auto work = [n] {
      const int64_t chunks = ceil_div(n, kStateChunk);
      const Tensor x = random_tensor({n}, 1, -1, 1, DType::kFloat32), y = random_tensor({n}, 2, -1, 1, DType::kFloat32);
      const Tensor norms = Tensor::empty({chunks}, DType::kFloat64), total = Tensor::empty({1}, DType::kFloat64);
      const Tensor ranges = Tensor::of(std::vector<int64_t>{0, chunks}, {2});
      const auto* in = static_cast<const float*>(x.read());
      auto* sum = static_cast<float*>(y.write());
      auto* out = static_cast<double*>(norms.write());
      current_stream().enqueue([=](Parallel& p) {
        kernels(p).chunk_norms(p, in, n, out);
        kernels(p).tree_add(p, sum, in, n);
      });
      Values values{norms.to_vector(), y.to_vector()};
      const TreeSumsArgs sums{out, static_cast<const int64_t*>(ranges.read()), 1, static_cast<double*>(total.write())};
      current_stream().enqueue([=](Parallel& p) { kernels(p).tree_sums(p, sums); });
      values.push_back(total.to_vector());
      return values;
    };
    expect_equal_bits(on_stream(gpu_device(), 1, work), on_stream(Device{}, 1, work), str(n, " elements"));
  }
}

TEST(Kernels, GiveTheCpusInitialValues) {
  for (const bool normal : {true, false}) {
    const auto work = [normal] {
      const Tensor out = Tensor::empty({100'003});
      InitialArgs a;
      a.normal = normal, a.scale = 0.02f, a.seed = 5, a.site = 77, a.begin = 13, a.end = 13 + out.numel();
      a.out = static_cast<float*>(out.write());
      current_stream().enqueue([a](Parallel& p) { kernels(p).initial(p, a); });
      return Values{out.to_vector()};
    };
    expect_equal_bits(on_stream(gpu_device(), 1, work), on_stream(Device{}, 1, work), normal ? "normal" : "uniform");
    const auto of_box = [normal] {
      const Region box({300, 501}, {20, 100}, {250, 333});
      const Tensor out = Tensor::empty({box.numel() - 7});
      fill_initial(normal ? Init::normal(0.02) : Init::uniform(0.5), 5, "w", box, {7, box.numel()},
                   static_cast<float*>(out.write()));
      return Values{out.to_vector()};
    };
    expect_equal_bits(on_stream(gpu_device(), 1, of_box), on_stream(Device{}, 1, of_box), "of a box");
  }
}

TEST(Kernels, GiveTheCpusRandomNumbers) {
  const std::vector<int64_t> samples{5, 9, 1 << 20};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    const auto work = [&] {
      const WithRandom with({1, 2, std::make_shared<const std::vector<int64_t>>(samples)});
      return Values{randn({3, 7, 1001}, 4, dtype).to_vector(), uniform({3, 90}, 5, dtype).to_vector()};
    };
    expect_equal_bits(on_stream(gpu_device(), 1, work), on_stream(Device{}, 1, work), str(dtype));
  }
}

TEST(Kernels, DecodeFrozenWeightsToTheCpusBits) {
  for (const DType coding : {DType::kNf4, DType::kInt8})
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
      const auto work = [&] {
        const Shape shape{333, 192};
        const Tensor values = Tensor::empty(shape, dtype);
        Tensor codes = Tensor::unallocated(shape, coding, Device{});
        codes.allocate();
        fill_coded({"w", shape, 0, codes.flatten()}, [](IndexRange r, float* out) {
          for (int64_t i = r.begin; i < r.end; ++i) *out++ = static_cast<float>(i * i % 4099 - 2000) / 1000.0f;
        });
        const Tensor here = Tensor::empty(shape, coding);
        raw::copy(here, codes);
        raw::copy(values, here);
        return Values{values.to_vector()};
      };
      expect_equal_bits(on_stream(gpu_device(), 1, work), on_stream(Device{}, 1, work), str(coding, " to ", dtype));
    }
}

TEST(Kernels, SeeWhatIsNotFinite) {
  on_stream(gpu_device(), 1, [] {
    const Tensor x = Tensor::full({100'003}, 1);
    EXPECT_TRUE(raw::all_finite(x));
    raw::fill(x.slice(0, 70'000, 70'001), NAN);
    EXPECT_FALSE(raw::all_finite(x));
    raw::fill(x.slice(0, 70'000, 70'001), INFINITY);
    EXPECT_FALSE(raw::all_finite(x));
    return Values{};
  });
}

TEST(Kernels, TellOfBadIndicesWhenTheHostNextWaits) {
  Stream stream(gpu_device(), Stream::Mode::kInline);
  WithStream with(stream);
  const Tensor y = embedding(Tensor::zeros({4, 2}), Tensor::of(std::vector<int32_t>{1, 4}, {2}));
  test::expect_error(ExitCode::kBadData, {"index 4 at position 1", "4 rows"}, [&] { y.to_vector(); });
}

TEST(Streams, OfOneGpuWaitForEachOther) {
  Stream producer(gpu_device(), Stream::Mode::kInline), consumer(gpu_device(), Stream::Mode::kInline);
  for (int round = 1; round <= 20; ++round) {
    Tensor value, twice;
    {
      WithStream with(producer);
      value = Tensor::zeros({1 << 20});
      for (int i = 0; i < round; ++i) raw::pointwise(PointwiseOp::kAffine, {value}, {value}, 1, 1);
    }
    {
      WithStream with(consumer);
      consumer.wait(producer.record());
      twice = Tensor::empty({1 << 20});
      raw::pointwise(PointwiseOp::kAffine, {twice}, {value}, 2, 0);
      EXPECT_EQ(twice.slice(0, (1 << 20) - 1, 1 << 20).item(), 2 * round);
      value = twice = Tensor();
    }
  }
}

TEST(Streams, TellWhenTheirWorkIsDone) {
  Stream stream(gpu_device(), Stream::Mode::kInline);
  WithStream with(stream);
  const Tensor value = Tensor::zeros({1 << 20});
  for (int i = 0; i < 50; ++i) raw::pointwise(PointwiseOp::kAffine, {value}, {value}, 1, 1);
  const Event event = stream.record();
  EXPECT_TRUE(event.synchronize(Seconds(60)));
  EXPECT_TRUE(event.done());
  EXPECT_EQ(value.slice(0, 5, 6).item(), 50);
}

TEST(Memory, OfTheHostArrivesAndComesBack) {
  Stream stream(gpu_device(), Stream::Mode::kInline);
  WithStream with(stream);
  for (int64_t n : {1, 1000, 1 << 20}) {
    for (Device host : {Device{}, host_memory_of(gpu_device())}) {
      Tensor there = Tensor::unallocated({n}, DType::kFloat32, host),
             back = Tensor::unallocated({n}, DType::kFloat32, host);
      there.allocate();
      back.allocate();
      auto* v = static_cast<float*>(there.write());
      for (int64_t i = 0; i < n; ++i) v[i] = static_cast<float>(i % 256);  // exact in bf16
      const Tensor gpu = Tensor::empty({n}, DType::kBFloat16);
      raw::copy(gpu, there);
      raw::copy(back, gpu);
      stream.synchronize();
      EXPECT_EQ(static_cast<const float*>(back.read())[n - 1], static_cast<float>((n - 1) % 256)) << to_text(host);
    }
  }
}

TEST(Memory, ThatEndsIsSaidAndWorkGoesOn) {
  Stream stream(gpu_device(), Stream::Mode::kInline);
  WithStream with(stream);
  const int64_t all = device_backend().properties(0).memory_bytes;
  test::expect_error(ExitCode::kDevice, {"out of memory on cuda:0", str(2 * all, " bytes asked for")},
                     [&] { Tensor::empty({2 * all}, DType::kUInt8); });
  EXPECT_EQ(Tensor::full({10}, 1).to_vector(), std::vector<double>(10, 1));
}

TEST(Memory, OfASteadyLoopAsksTheDriverForNothing) {
  Stream stream(gpu_device(), Stream::Mode::kInline);
  WithStream with(stream);
  const auto step = [] {
    Tensor x = Tensor::full({64, 512}, 0.5), w = Tensor::full({512, 512}, 0.25);
    require_grad(w);
    backward(sum(gelu(linear(x, w))));
    return grad_of(w).numel();
  };
  step();
  const int64_t before = allocator_stats(gpu_device()).system_allocations;
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(allocator_stats(gpu_device()).system_allocations, before);
}

}  // namespace
}  // namespace lockstep
