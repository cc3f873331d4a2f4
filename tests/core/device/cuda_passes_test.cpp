// CUDA's kernels of batch norm, of recurrent cells and of resampling, compiled by the host's compiler, beside the
// CPU's.
#include <gtest/gtest.h>

#include <cmath>

#include "core/base/partition.h"
#include "core/base/state_chunk.h"
#include "core/device/cuda/kernels/kernels.h"
#include "core/device/cuda/kernels/launch.h"
#include "core/device/thread_pool.h"
#include "core/tensor/raw_ops.h"
#include "tests/core/device/on_stand_in.h"

namespace lockstep::cuda_passes_test {
namespace {

using namespace testing;

TEST(CudaColumns, SumsOfChannels) {
  for (DType dtype : kFloats)
    for (const auto& [batch, rows, channels] : {std::tuple{1, 2, 1}, std::tuple{1, 2000, 96}, std::tuple{1, 77, 515},
                                                std::tuple{1, 300, 30}, std::tuple{3, 777, 35}})
      for (int what : {0, 1, 2}) {  // moments, gradients, gradients behind relu
        SCOPED_TRACE(str(batch, " x ", rows, " x ", channels, " of ", dtype, ", ", what));
        const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
        const Tensor x = random_tensor({batch, rows, channels}, 1, 1, 3, dtype),
                     g = random_tensor({batch, rows, channels}, 2, -1, 1, dtype);
        Tensor of_channels[4];  // mean, rstd, scale, shift
        for (uint64_t i = 0; i < 4; ++i)
          of_channels[i] = random_tensor({batch, channels}, 3 + i, i < 3 ? 0.5 : -3, i < 3 ? 2 : -1, wide);
        expect_near(
            [&, batch = batch, rows = rows, channels = channels](const KernelTable& table, Parallel& where) {
              const Tensor out0 = Tensor::empty({batch, channels}, wide), out1 = Tensor::empty({batch, channels}, wide);
              ChannelSumsArgs a;
              a.batch = batch, a.rows = rows, a.channels = channels;
              a.x = x.read(), a.x_dtype = dtype;
              if (what > 0) a.g = g.read(), a.g_dtype = dtype;
              a.mean = of_channels[0].read(), a.rstd = of_channels[1].read();
              if (what == 2) a.scale = of_channels[2].read(), a.shift = of_channels[3].read();
              a.out0 = out0.write(), a.out1 = out1.write();
              table.channel_sums(where, a);
              return Values{out0.to_vector(), out1.to_vector()};
            },
            64 * rounding_of(wide));
      }
}

TEST(CudaPointwise, PassesOfBatchNorm) {
  // Operands: r of rows, c of channels.
  const std::vector<std::pair<BatchNormPass, std::string>> passes = {
      {BatchNormPass::kForward, "rcc"},       {BatchNormPass::kForwardRelu, "rcc"},
      {BatchNormPass::kForwardAdd, "rccr"},   {BatchNormPass::kForwardAddRelu, "rccr"},
      {BatchNormPass::kBackward, "rrcccc"},   {BatchNormPass::kBackwardRelu, "rrccccc"},
      {BatchNormPass::kCoefficients, "cccc"}, {BatchNormPass::kGradientCoefficients, "cccc"}};
  for (DType dtype : kFloats)
    for (auto& [pass, operands] : passes)
      for (int channels : {16, 35}) {
        SCOPED_TRACE(str(static_cast<int>(pass), " of ", channels, " channels in ", dtype));
        const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
        std::vector<Tensor> ins;
        for (char o : operands) {
          const uint64_t seed = 7 + ins.size();
          ins.push_back(o == 'r' ? random_tensor({70, channels}, seed, -1, 2, dtype)
                                 : random_tensor({channels}, seed, 0.2, 2, wide));
        }
        const bool coefficients = operands[0] == 'c';
        const int outs = !coefficients ? 1 : pass == BatchNormPass::kCoefficients ? 4 : 2;
        expect_equal([&, pass = pass](const KernelTable& table, Parallel& where) {
          std::vector<Tensor> out;
          for (int i = 0; i < outs; ++i)
            out.push_back(coefficients ? Tensor::empty({channels}, wide) : Tensor::empty({70, channels}, dtype));
          PointwiseArgs a = args_of(out[0], ins);
          for (int i = 1; i < outs; ++i) {
            a.out[i] = a.out[0];
            a.out[i].data = out[static_cast<size_t>(i)].write();
          }
          a.outs = outs;
          a.scalars[0] = pass == BatchNormPass::kCoefficients ? 70 : 1.0 / 70, a.scalars[1] = 1e-5;
          table.batch_norm(where, pass, a);
          Values values;
          for (const Tensor& t : out) values.push_back(t.to_vector());
          return values;
        });
      }
}

TEST(CudaPointwise, Cells) {
  struct Case {
    CellPass pass;
    int ins, outs;
  };
  for (DType dtype : {DType::kFloat32, DType::kFloat64})
    for (const Case& c : {Case{CellPass::kLstm, 5, 2}, Case{CellPass::kLstmBackward, 7, 5}, Case{CellPass::kGru, 5, 1},
                          Case{CellPass::kGruBackward, 6, 5}})
      for (const Shape& shape : {Shape{24, 32}, Shape{5, 7}}) {
        SCOPED_TRACE(str(static_cast<int>(c.pass), " of ", shape, " in ", dtype));
        std::vector<Tensor> ins;
        for (int i = 0; i < c.ins; ++i) ins.push_back(random_tensor(shape, 3 + static_cast<uint64_t>(i), -2, 2, dtype));
        expect_equal([&](const KernelTable& table, Parallel& where) {
          std::vector<Tensor> out;
          for (int i = 0; i < c.outs; ++i) out.push_back(Tensor::empty(shape, dtype));
          PointwiseArgs a = args_of(out[0], ins);
          for (int i = 1; i < c.outs; ++i) {
            a.out[i] = a.out[0];
            a.out[i].data = out[static_cast<size_t>(i)].write();
          }
          a.outs = c.outs;
          table.cell(where, c.pass, a);
          Values values;
          for (const Tensor& t : out) values.push_back(t.to_vector());
          return values;
        });
      }
}

TEST(CudaRecurrent, StepsAndTheirGradients) {
  constexpr int64_t kTime = 3, kBatch = 4, kHidden = 6;
  for (DType low : {DType::kFloat32, DType::kBFloat16, DType::kFloat64})
    for (bool lstm : {true, false})
      for (bool reverse : {false, true}) {
        SCOPED_TRACE(str(lstm ? "LSTM" : "GRU", reverse ? ", reverse" : "", " in ", low));
        const DType wide = low == DType::kFloat64 ? low : DType::kFloat32;
        const int64_t gates = (lstm ? 4 : 3) * kHidden;
        uint64_t seed = 0;
        const auto values = [&](const Shape& shape, DType dtype) { return random_tensor(shape, ++seed, -1, 1, dtype); };
        const auto work = [&](const KernelTable& table, Parallel& where) {
          seed = 0;
          const Tensor weight = values({gates, kHidden}, low), zero = Tensor::zeros({1}, wide),
                       sums = values({kTime, kBatch, gates}, wide), of_h = values({kTime, kBatch, kHidden}, wide),
                       dh = values({kTime, kBatch, kHidden}, wide), c = Tensor::empty(dh.shape(), wide),
                       h = Tensor::empty(dh.shape(), low), dstate = Tensor::zeros({kBatch, kHidden}, wide),
                       dgates = Tensor::empty(sums.shape(), wide), dof_h = Tensor::zeros(of_h.shape(), wide),
                       dgates_low = low == wide ? dgates : Tensor::empty(sums.shape(), low),
                       dof_h_low = low == wide ? dof_h : Tensor::zeros(of_h.shape(), low);
          RecurrentArgs a;
          a.pass = lstm ? CellPass::kLstm : CellPass::kGru, a.reverse = reverse;
          a.time = kTime, a.batch = kBatch, a.hidden = kHidden, a.wide = wide, a.low = low;
          a.weight = weight.read(), a.zero = zero.read();
          a.gates = sums.write(), a.of_h = of_h.write(), a.c = c.write(), a.h = h.write(), a.dh = dh.write();
          a.dgates = dgates.write(), a.dof_h = dof_h.write(), a.dstate = dstate.write();
          a.dgates_low = dgates_low.write(), a.dof_h_low = dof_h_low.write();
          table.recurrent(where, a);
          a.pass = lstm ? CellPass::kLstmBackward : CellPass::kGruBackward;
          table.recurrent(where, a);
          return Values{h.to_vector(), dh.to_vector(), dgates.to_vector(), dof_h_low.to_vector(), dstate.to_vector()};
        };
        expect_near(work, 4 * rounding_of(low));
      }
}

TEST(CudaImages, Resample) {
  using enum ResampleMode;
  const auto axis = [](ResampleMode mode, int64_t in, int64_t out) {
    return ResampleAxis{.mode = mode, .in = in, .out = out};
  };
  const ResampleAxis window{.in = 9, .out = 5, .window = 3, .stride = 2, .padding = 1},
      of_pixels{.in = 8, .out = 4, .window = 3, .stride = 2, .padding = 1, .count_padding = false},
      overlapping{.in = 8, .out = 6, .window = 3, .stride = 1};
  for (DType dtype : kFloats)
    for (const auto& [height, width] :
         {std::pair{window, of_pixels}, std::pair{overlapping, window}, std::pair{axis(kAdaptive, 9, 4), overlapping},
          std::pair{axis(kAdaptive, 3, 7), axis(kAdaptive, 6, 6)},
          std::pair{axis(kNearest, 4, 8), axis(kNearest, 9, 4)}, std::pair{axis(kLinear, 4, 8), axis(kLinear, 7, 5)},
          std::pair{axis(kLinear, 1, 3), axis(kLinear, 9, 2)}})
      for (int channels : {16, 11}) {
        SCOPED_TRACE(str(static_cast<int>(height.mode), ", ", height.in, " x ", width.in, " to ", height.out, " x ",
                         width.out, ", ", channels, " channels in ", dtype));
        const Tensor x = random_tensor({2, height.in, width.in, channels}, 1, -1, 1, dtype),
                     dy = random_tensor({2, height.out, width.out, channels}, 2, -1, 1, dtype);
        expect_equal([&, height = height, width = width](const KernelTable& table, Parallel& where) {
          const Tensor y = Tensor::empty(dy.shape(), dtype), dx = Tensor::empty(x.shape(), dtype);
          ResampleArgs a;
          a.images = 2, a.channels = channels, a.height = height, a.width = width, a.dtype = dtype;
          a.x = const_cast<void*>(x.read()), a.y = y.write();
          table.resample(where, a);
          a.x = dx.write(), a.y = const_cast<void*>(dy.read());
          table.resample_backward(where, a);
          return Values{y.to_vector(), dx.to_vector()};
        });
      }
}

TEST(CudaUpdate, FoldsUpdatesInOrder) {
  const Tensor rows = random_tensor({5 * 96}, 1, -1, 1, DType::kFloat32);
  static_cast<float*>(rows.write())[100] = NAN;  // leaves the value as it is
  const Tensor order = Tensor::of(std::vector<int32_t>{3, 0, 4, 1}, {4});
  for (float skip : {0.0f, 1.0f}) {
    const Tensor verdict = Tensor::of(std::vector<float>{1, skip}, {2});
    expect_equal([&](const KernelTable& table, Parallel& where) {
      const Tensor value = random_tensor({70}, 2, -1, 1, DType::kFloat32);
      FoldArgs a;
      a.count = 4, a.elements = 70, a.stride = 96, a.rate = 0.1f;
      a.value = static_cast<float*>(value.write());
      a.rows = static_cast<const float*>(rows.read());
      a.order = static_cast<const int32_t*>(order.read());
      a.verdict = static_cast<const float*>(verdict.read());
      table.fold(where, a);
      return Values{value.to_vector()};
    });
  }
}

}  // namespace
}  // namespace lockstep::cuda_passes_test
