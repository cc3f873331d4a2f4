// The optimizers' kernels of a GPU on a stand-in for CUDA, against the CPU's generic level, to the bit.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/partition.h"
#include "core/base/state_chunk.h"
#include "core/tensor/raw_ops.h"
#include "tests/core/device/on_stand_in.h"

namespace lockstep::cuda_updates_test {
namespace {

using namespace testing;

TEST(CudaUpdate, OfEachOptimizer) {
  for (DType gradient : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
    for (int64_t n : {64, 1003})
      for (float skip : {0.0f, 1.0f})
        for (auto [op, copied] : {std::pair{"sgd", false}, std::pair{"adamw", false}, std::pair{"sgd", true},
                                  std::pair{"adamw", true}, std::pair{"adam", true}, std::pair{"lion", true}}) {
          SCOPED_TRACE(str(op, ", gradient in ", gradient, ", ", n, " elements, ", copied ? "copied" : "once"));
          expect_equal([&, op = op, copied = copied](const KernelTable& table, Parallel& where) {
            const float control[UpdateControl::kCount] = {0.01f, 0.5f, skip, 0.3f, 0.2f};
            const Tensor p = random_tensor({n}, 1, -1, 1, DType::kFloat32),
                         m = random_tensor({n}, 2, -1, 1, DType::kFloat32),
                         v = random_tensor({n}, 3, 0, 1, DType::kFloat32), g = random_tensor({n}, 4, -1, 1, gradient);
            const bool adam = std::string_view(op).starts_with("adam");
            const Tensor copy = Tensor::zeros({n}, gradient);
            PointwiseArgs a = adam ? raw::pointwise_args({p, m, v, copy}, {p, m, v, g})
                                   : raw::pointwise_args({p, m, copy}, {p, m, g});
            if (!copied) --a.outs;
            const double scalars[] = {0.9, adam ? 0.99 : 0.01, adam ? 1e-8 : 1, adam ? 0.1 : 1, 1};
            std::copy(std::begin(scalars), std::end(scalars), a.scalars);
            a.control = control;
            table.update(where, op, {&a, 1});
            return Values{p.to_vector(), m.to_vector(), v.to_vector(), copy.to_vector()};
          });
        }
}

// What lies as its group has it goes together, up to 24 parts; a part that is not aligned goes alone.
TEST(CudaUpdate, OfManySlotsIsOneLaunch) {
  const std::vector<int64_t> sizes = {64, 1003, 8, 7, 5000, 129};
  const auto update = [&](const KernelTable& table, Parallel& where, size_t count, int64_t shift, bool copied) {
    const float control[UpdateControl::kCount] = {0.01f, 0.5f, 0, 0.3f, 0.2f};
    std::vector<PointwiseArgs> parts;
    std::vector<Tensor> seen;
    for (size_t i = 0; i < count; ++i) {
      const int64_t n = sizes[i % sizes.size()];
      const uint64_t seed = 10 * i;
      const Tensor p = random_tensor({n + 1}, seed + 1, -1, 1, DType::kFloat32).slice(0, shift, n + shift),
                   m = random_tensor({n}, seed + 2, -1, 1, DType::kFloat32),
                   v = random_tensor({n}, seed + 3, 0, 1, DType::kFloat32),
                   g = random_tensor({n}, seed + 4, -1, 1, DType::kBFloat16),
                   copy = Tensor::zeros({n}, DType::kBFloat16);
      PointwiseArgs a = raw::pointwise_args({p, m, v, copy}, {p, m, v, g});
      if (!copied) --a.outs;
      const double scalars[] = {0.9, 0.99, 1e-8, i % 2 ? 0.1 : 0, i % 3 ? 1 : 0.5};
      std::copy(std::begin(scalars), std::end(scalars), a.scalars);
      a.control = control;
      parts.push_back(a);
      for (const Tensor& t : {p, m, v, g, copy}) seen.push_back(t);
    }
    table.update(where, "adamw", parts);
    Values values;
    for (const Tensor& t : seen) values.push_back(t.to_vector());
    return values;
  };
  for (bool copied : {false, true})
    for (auto [count, shift, launches] : {std::tuple<size_t, int64_t, int64_t>{6, 0, 1}, {30, 0, 2}, {3, 1, 3}}) {
      SCOPED_TRACE(str(static_cast<int64_t>(count), " slots, ", shift, " from alignment"));
      expect_equal([&, count = count, shift = shift](const KernelTable& table, Parallel& where) {
        return update(table, where, count, shift, copied);
      });
      const int64_t before = cuda_stand_in::launches();
      (void)update(cuda_kernels(), *make_queue(3), count, shift, copied);
      EXPECT_EQ(cuda_stand_in::launches() - before, launches);
    }
  const int64_t before = cuda_stand_in::launches();
  const Tensor none = Tensor::empty({0});  // a rank's share of a parameter may be empty
  const PointwiseArgs empty = raw::pointwise_args({none, none, none}, {none, none, none, none});
  const std::vector<PointwiseArgs> parts{empty, empty};
  cuda_kernels().update(*make_queue(3), "adamw", parts);
  EXPECT_EQ(cuda_stand_in::launches(), before);
}

TEST(CudaUpdate, OfLamb) {
  for (int64_t n : {64, 1003})
    for (float skip : {0.0f, 1.0f})
      for (bool copied : {false, true})
        for (double adapts : {0.0, 1.0}) {
          SCOPED_TRACE(str(n, " elements, ", copied ? "copied" : "once"));
          expect_equal([&](const KernelTable& table, Parallel& where) {
            const float control[UpdateControl::kCount] = {0.01f, 0.5f, skip, 0.3f, 0.2f};
            const Tensor p = random_tensor({n}, 1, -1, 1, DType::kFloat32),
                         m = random_tensor({n}, 2, -1, 1, DType::kFloat32),
                         v = random_tensor({n}, 3, 0, 1, DType::kFloat32),
                         g = random_tensor({n}, 4, -1, 1, DType::kFloat32), direction = Tensor::zeros({n}),
                         copy = Tensor::zeros({n}, DType::kBFloat16), ratios = Tensor::zeros({3});
            PointwiseArgs a = raw::pointwise_args({m, v, direction}, {p, m, v, g});
            const double scalars[] = {0.9, 0.99, 1e-6, 0.1};
            std::copy(std::begin(scalars), std::end(scalars), a.scalars);
            a.control = control;
            table.update(where, "lamb_direction", {&a, 1});
            const Tensor squares = Tensor::of<double>({4, 0, 2}, {3}), other = Tensor::of<double>({9, 1, 0}, {3});
            const PointwiseArgs ratio = raw::pointwise_args({ratios}, {squares, other});
            table.update(where, "lamb_ratio", {&ratio, 1});
            PointwiseArgs b = raw::pointwise_args({p, copy}, {p, direction, ratios.slice(0, 0, 1).expand({n})});
            if (!copied) --b.outs;
            b.scalars[0] = 1, b.scalars[1] = adapts;
            b.control = control;
            table.update(where, "lamb", {&b, 1});
            EXPECT_EQ(ratios.to_vector(), (std::vector<double>{static_cast<float>(2.0 / 3), 1, 1}));
            return Values{p.to_vector(), m.to_vector(), v.to_vector(), direction.to_vector(), copy.to_vector()};
          });
        }
}

TEST(CudaUpdate, OfMuon) {
  for (int64_t n : {64, 1003})
    for (float skip : {0.0f, 1.0f})
      for (bool copied : {false, true}) {
        SCOPED_TRACE(str(n, " elements, ", copied ? "copied" : "once"));
        expect_equal([&](const KernelTable& table, Parallel& where) {
          const float control[UpdateControl::kCount] = {0.01f, 0.5f, skip};
          const Tensor p = random_tensor({n}, 1, -1, 1, DType::kFloat32),
                       m = random_tensor({n}, 2, -1, 1, DType::kFloat32),
                       g = random_tensor({n}, 4, -1, 1, DType::kFloat32), x = Tensor::zeros({n}),
                       copy = Tensor::zeros({n}, DType::kBFloat16), inverse = Tensor::zeros({2});
          PointwiseArgs a = raw::pointwise_args({m, x}, {m, g});
          a.scalars[0] = 0.95;
          a.control = control;
          table.update(where, "muon_momentum", {&a, 1});
          const Tensor squares = Tensor::of<double>({4, 0}, {2});
          const PointwiseArgs norm = raw::pointwise_args({inverse}, {squares});
          table.update(where, "muon_inverse_norm", {&norm, 1});
          PointwiseArgs b = raw::pointwise_args({p, copy}, {p, x});
          if (!copied) --b.outs;
          b.scalars[0] = 0.1, b.scalars[1] = 1, b.scalars[2] = 0.5;
          b.control = control;
          table.update(where, "muon", {&b, 1});
          return Values{p.to_vector(), m.to_vector(), x.to_vector(), inverse.to_vector(), copy.to_vector()};
        });
      }
}

TEST(CudaBlockCodes, AndBack) {
  for (int64_t n : {1, 63, 64, 65, 1000, 20000})
    for (float low : {-1.0f, 0.0f})
      for (float special : {0.5f, 1e-30f, INFINITY, NAN})
        expect_equal([&](const KernelTable& table, Parallel& where) {
          const Tensor x = raw::cast(random_tensor({n}, 1, low, 1, DType::kFloat32), DType::kFloat32),
                       codes = Tensor::zeros({n}, DType::kUInt8), scales = Tensor::zeros({ceil_div(n, kStateChunk)});
          float* values = x.mutable_values<float>();
          for (int64_t i = 0; i < n; i += 7) values[i] *= 1e-6f;
          for (int64_t i = 64; i < std::min(n, int64_t(128)); ++i) values[i] = 0;
          values[n / 2] = special;
          const BlockCodesArgs a{n, values, codes.mutable_values<uint8_t>(), scales.mutable_values<float>()};
          table.encode_blocks(where, a);
          table.decode_blocks(where, a);
          Values all{codes.to_vector(), scales.to_vector(), x.to_vector()};
          for (auto& tensor : all)
            for (double& v : tensor)
              if (v != v) v = -7;  // NaN is NaN, whatever its bits
          if (special != special) all[0].clear();
          return all;
        });
}

// Codes of frozen weights: every code and scale, of whole blocks and of a part of one.
TEST(CudaWeightCodes, DecodeToTheBitsOfTheCpu) {
  for (const DType coding : {DType::kNf4, DType::kInt8})
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kFloat16})
      for (int64_t n : {1, 63, 64, 65, 20'020}) {
        SCOPED_TRACE(str(n, " of ", coding, " to ", dtype));
        const int64_t blocks = ceil_div(n, kCodedBlock), width = bytes_of_block(coding);
        std::vector<uint8_t> codes(static_cast<size_t>(blocks * width));
        for (int64_t b = 0; b < blocks; ++b) {
          uint8_t* block = codes.data() + b * width;
          for (int64_t i = 0; i < width; ++i) block[i] = static_cast<uint8_t>((b * width + i) * 37 + b);
          const float scale = b % 5 == 4 ? 0.0f : 0.013f * static_cast<float>(b + 1);
          std::memcpy(block + width - sizeof scale, &scale, sizeof scale);
        }
        expect_equal([&](const KernelTable& table, Parallel& where) {
          const Tensor values = raw::cast(Tensor::full({n + 3}, 7), dtype);  // 3 behind them stay
          table.decode_weight(
              where,
              {.count = n, .coding = coding, .values_dtype = dtype, .codes = codes.data(), .values = values.write()});
          return Values{values.to_vector()};
        });
      }
}

}  // namespace
}  // namespace lockstep::cuda_updates_test
