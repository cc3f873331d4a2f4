// The kernels of a GPU, their very text, on a stand-in for CUDA: against the CPU's generic level, to the bit where the
// order of sums is the same, and whatever the number of multiprocessors. Rows: cuda_rows_test; optimizers:
// cuda_updates_test.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "core/base/partition.h"
#include "core/base/state_chunk.h"
#include "core/device/cuda/kernels/kernels.h"
#include "core/device/cuda/kernels/launch.h"
#include "core/device/thread_pool.h"
#include "core/tensor/raw_ops.h"
#include "tests/core/device/on_stand_in.h"

namespace lockstep::cuda_kernels_test {
namespace {

using namespace testing;

// ----- Pointwise -----

void expect_pointwise(PointwiseOp op, const std::vector<Tensor>& ins, const Shape& shape, DType dtype) {
  expect_equal([&](const KernelTable& table, Parallel& where) {
    const Tensor out = Tensor::empty(shape, dtype);
    PointwiseArgs a = args_of(out, ins);
    a.scalars[0] = 0.3, a.scalars[1] = 0.7;
    table.pointwise(where, op, a);
    return Values{out.to_vector()};
  });
}

TEST(CudaPointwise, EveryOperationInEveryType) {
  for (DType dtype : kFloats)
    for (const PointwiseInfo& c : kPointwiseOps) {
      SCOPED_TRACE(str(c.name, " in ", dtype));
      for (const Shape& shape : {Shape{3, 701}, Shape{16, 64}}) {
        std::vector<Tensor> ins;
        for (int j = 0; j < c.ins; ++j) ins.push_back(random_tensor(shape, 5 + static_cast<uint64_t>(j), -2, 3, dtype));
        expect_pointwise(c.op, ins, shape, dtype);
      }
    }
}

TEST(CudaPointwise, SpecialValues) {
  const double inf = INFINITY;
  std::vector<float> values = {0, -0.0f, 1, -1, NAN, float(inf), float(-inf), 90, -90, 3e38f, -3e38f, 1e-20f, 70000};
  const Tensor x = Tensor::of(values, {static_cast<int64_t>(values.size())});
  for (DType dtype : kFloats)
    for (const PointwiseInfo& c : kPointwiseOps) {
      SCOPED_TRACE(str(c.name, " in ", dtype));
      const Tensor in = raw::cast(x, dtype);
      expect_pointwise(c.op, std::vector<Tensor>(static_cast<size_t>(c.ins), in), in.shape(), dtype);
    }
}

TEST(CudaPointwise, LengthsAndAlignment) {
  for (DType dtype : kFloats)
    for (int64_t n : {1, 7, 8, 9, 4096, 10001})
      for (int64_t skip : {0, 1, 8}) {
        SCOPED_TRACE(str(n, " elements of ", dtype, " from ", skip));
        const Tensor a = random_tensor({n + skip}, 1, -1, 1, dtype).slice(0, skip, n + skip),
                     b = random_tensor({n}, 2, -1, 1, dtype);
        expect_pointwise(PointwiseOp::kAdd, {a, b}, {n}, dtype);
        expect_equal([&](const KernelTable& table, Parallel& where) {  // into a slice, in place
          const Tensor all = random_tensor({n + skip + 3}, 3, -1, 1, dtype), part = all.slice(0, skip, n + skip);
          table.pointwise(where, PointwiseOp::kAdd, args_of(part, {part, b}));
          return Values{all.to_vector()};
        });
      }
}

TEST(CudaPointwise, BroadcastsAndStrides) {
  for (DType dtype : kFloats) {
    SCOPED_TRACE(to_text(dtype));
    for (const auto& [rows, cols] : {std::pair{5, 48}, std::pair{5, 47}, std::pair{64, 1}, std::pair{1, 64}}) {
      const Tensor x = random_tensor({rows, cols}, 1, -1, 1, dtype);
      for (const Tensor& other :
           {random_tensor({cols}, 2, -1, 1, dtype), random_tensor({rows, 1}, 3, -1, 1, dtype),
            random_tensor({1}, 4, -1, 1, dtype), random_tensor({cols, rows}, 5, -1, 1, dtype).transpose(0, 1),
            random_tensor({rows, 2 * cols}, 6, -1, 1, dtype).slice(1, cols, 2 * cols)}) {
        expect_pointwise(PointwiseOp::kSub, {x, other}, {rows, cols}, dtype);
        expect_pointwise(PointwiseOp::kSub, {other.expand({rows, cols}), x}, {rows, cols}, dtype);
      }
      expect_equal([&](const KernelTable& table, Parallel& where) {  // out is strided
        const Tensor out = Tensor::zeros({cols, rows}, dtype);
        table.pointwise(where, PointwiseOp::kCopy, args_of(out.transpose(0, 1), {x}));
        return Values{out.to_vector()};
      });
    }
    const Tensor deep = random_tensor({3, 4, 5, 6, 8}, 7, -1, 1, dtype);
    expect_pointwise(PointwiseOp::kCopy, {deep.transpose(1, 3)}, {3, 6, 5, 4, 8}, dtype);
    expect_pointwise(PointwiseOp::kCopy, {deep.transpose(0, 4)}, {8, 4, 5, 6, 3}, dtype);
    expect_pointwise(PointwiseOp::kSquare, {random_tensor({}, 8, -1, 1, dtype)}, {}, dtype);
  }
}

TEST(CudaPointwise, Conversions) {
  constexpr DType kAll[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                            DType::kInt64,   DType::kInt32,    DType::kUInt8};
  for (DType from : kAll)
    for (DType to : kAll) {
      SCOPED_TRACE(str(from, " to ", to));
      const Tensor x = raw::cast(random_tensor({3, 75}, 1, 0, 250, DType::kFloat32), from);
      expect_pointwise(PointwiseOp::kCopy, {x}, {3, 75}, to);
      const Tensor y = random_tensor({3, 75}, 2, 0, 4, DType::kFloat32);
      expect_pointwise(PointwiseOp::kAdd, {x, y}, {3, 75}, to);
    }
}

// ----- Columns -----

TEST(CudaColumns, Sums) {
  for (DType dtype : kFloats)
    for (const auto& [batch, rows, cols] :
         {std::tuple{1, 1, 1}, std::tuple{1, 1000, 1}, std::tuple{3, 37, 5}, std::tuple{1, 3001, 96},
          std::tuple{2, 130, 515}, std::tuple{4, 3, 1000}, std::tuple{1, 0, 9}})
      for (bool accumulate : {false, true}) {
        SCOPED_TRACE(str(batch, " x ", rows, " x ", cols, " of ", dtype));
        const Tensor x = random_tensor({batch, rows, cols}, 1, -1, 1, dtype);
        const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
        for (DType out_dtype : {dtype, wide})
          expect_near(
              [&, batch = batch, rows = rows, cols = cols](const KernelTable& table, Parallel& where) {
                const Tensor out = random_tensor({batch, cols}, 2, -1, 1, out_dtype);
                ColumnArgs a;
                a.batch = batch, a.rows = rows, a.cols = cols;
                a.in = x.read(), a.in_dtype = dtype;
                a.out = out.write(), a.out_dtype = out_dtype;
                a.accumulate = accumulate;
                table.column_sum(where, a);
                return Values{out.to_vector()};
              },
              16 * rounding_of(out_dtype));
      }
}

TEST(CudaColumns, GradientsOfLayerNorm) {
  for (DType dtype : kFloats)
    for (const auto& [rows, cols] : {std::pair{1, 1}, std::pair{2000, 96}, std::pair{77, 515}, std::pair{300, 30}})
      for (bool accumulate : {false, true})
        for (bool bias : {false, true}) {
          SCOPED_TRACE(str(rows, " x ", cols, " of ", dtype));
          const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
          const Tensor g = random_tensor({rows, cols}, 1, -1, 1, dtype),
                       x = random_tensor({rows, cols}, 2, -1, 1, dtype), mean = random_tensor({rows}, 3, -1, 1, wide),
                       rstd = random_tensor({rows}, 4, 0.5, 2, wide);
          expect_near(
              [&, rows = rows, cols = cols](const KernelTable& table, Parallel& where) {
                const Tensor dw = random_tensor({cols}, 5, -1, 1, wide), db = random_tensor({cols}, 6, -1, 1, dtype);
                NormColumnsArgs a;
                a.rows = rows, a.cols = cols;
                a.g = g.read(), a.x = x.read(), a.g_dtype = a.x_dtype = dtype;
                a.mean = mean.read(), a.rstd = rstd.read();
                a.dweight = dw.write(), a.dweight_dtype = wide;
                if (bias) a.dbias = db.write(), a.dbias_dtype = dtype;
                a.accumulate_weight = accumulate, a.accumulate_bias = !accumulate;
                table.norm_columns(where, a);
                return Values{dw.to_vector(), db.to_vector()};
              },
              16 * rounding_of(dtype));
        }
}

// ----- Tables -----

GatherArgs gather_args(const Tensor& table, const Tensor& index, const Tensor& rows) {
  GatherArgs a;
  a.rows = index.numel(), a.cols = table.dim(1), a.table_rows = table.dim(0);
  a.table = table.write(), a.table_dtype = table.dtype();
  a.index = static_cast<const int32_t*>(index.read());
  a.rows_data = rows.write(), a.rows_dtype = rows.dtype();
  return a;
}

Tensor indices(int64_t n, int64_t end, uint64_t seed) {
  std::vector<int32_t> out(static_cast<size_t>(n));
  uint64_t state = seed;
  for (int32_t& i : out) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    i = static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(end));
    if (state >> 62 == 0) i = 0;  // some are frequent
  }
  return Tensor::of(out, {n});
}

TEST(CudaTables, Gather) {
  for (DType table_dtype : kFloats)
    for (DType rows_dtype : kFloats)
      for (int64_t cols : {1, 7, 8, 48, 300}) {
        SCOPED_TRACE(str(cols, " columns, ", table_dtype, " to ", rows_dtype));
        const Tensor table = random_tensor({31, cols}, 1, -1, 1, table_dtype), index = indices(50, 31, 2);
        expect_equal([&](const KernelTable& kernel, Parallel& where) {
          const Tensor rows = Tensor::zeros({50, cols}, rows_dtype);
          kernel.gather(where, gather_args(table, index, rows));
          return Values{rows.to_vector()};
        });
      }
}

TEST(CudaTables, ScatterAddInRowOrder) {
  for (const auto& [table_dtype, rows_dtype] :
       {std::pair{DType::kFloat32, DType::kFloat32}, std::pair{DType::kFloat32, DType::kBFloat16},
        std::pair{DType::kFloat32, DType::kFloat16}, std::pair{DType::kFloat64, DType::kFloat64}})
    for (const auto& [rows, table_rows, cols] :
         {std::tuple{1, 1, 1}, std::tuple{700, 3, 9}, std::tuple{900, 300, 40}, std::tuple{300, 70000, 8},
          std::tuple{65, 1, 300}, std::tuple{1500, 256, 16}}) {
      SCOPED_TRACE(str(rows, " rows into ", table_rows, " x ", cols, ", ", rows_dtype, " into ", table_dtype));
      const Tensor index = indices(rows, table_rows, 3), g = random_tensor({rows, cols}, 1, -1, 1, rows_dtype);
      expect_equal([&, n = table_rows, c = cols, type = table_dtype](const KernelTable& kernel, Parallel& where) {
        const Tensor table = random_tensor({n, c}, 2, -1, 1, type);
        kernel.scatter_add(where, gather_args(table, index, g));
        return Values{table.to_vector()};
      });
    }
}

// A CPU rounds after each addition, a GPU once.
TEST(CudaTables, ScatterAddIntoHalves) {
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Tensor index = indices(60, 20, 3), g = random_tensor({60, 24}, 1, -1, 1, dtype);
    expect_near(
        [&](const KernelTable& kernel, Parallel& where) {
          const Tensor table = random_tensor({20, 24}, 2, -1, 1, dtype);
          kernel.scatter_add(where, gather_args(table, index, g));
          return Values{table.to_vector()};
        },
        8 * rounding_of(dtype));
  }
}

TEST(CudaTables, AnIndexOutsideTouchesNothingAndIsReported) {
  const Tensor index = Tensor::of(std::vector<int32_t>{1, -1, 5, 2000000000, 0, 1}, {6});
  const Tensor table = random_tensor({5, 16}, 1, 1, 2, DType::kFloat32), rows = Tensor::empty({6, 16});
  const auto before = table.to_vector();
  auto queue = make_queue(2);
  cuda_kernels().gather(*queue, gather_args(table, index, rows));
  auto got = rows.to_vector();
  for (size_t r : {1, 2, 3})
    for (size_t c = 0; c < 16; ++c) ASSERT_EQ(got[r * 16 + c], 0);
  for (size_t c = 0; c < 16; ++c) ASSERT_EQ(got[c], before[16 + c]);
  raw::fill(rows, 1);
  cuda_kernels().scatter_add(*queue, gather_args(table, index, rows));
  got = table.to_vector();
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_FLOAT_EQ(static_cast<float>(got[i]), static_cast<float>(before[i] + (i / 16 == 0   ? 1
                                                                                : i / 16 == 1 ? 2
                                                                                              : 0)));

  IndexCheckArgs range;
  range.index = static_cast<const int32_t*>(index.read()), range.count = 6, range.end = 5;
  cuda_kernels().check_indices(*queue, range);
  EXPECT_EQ(queue->trap()->set, 1);
  EXPECT_EQ(queue->trap()->use, static_cast<int32_t>(IndexCheckArgs::Use::kEmbedding));
  EXPECT_EQ(queue->trap()->value, -1);
  EXPECT_EQ(queue->trap()->position, 1);
  EXPECT_EQ(queue->trap()->end, 5);
}

TEST(CudaTables, CheckOfTheRange) {
  std::vector<int32_t> values(40000, 3);
  for (int64_t bad : {int64_t(-1), int64_t(0), int64_t(31), int64_t(8191), int64_t(39999)}) {
    SCOPED_TRACE(bad);
    std::vector<int32_t> v = values;
    v[7] = -5;  // ignored
    if (bad >= 0) v[static_cast<size_t>(bad)] = 10, v.back() = 11;
    const Tensor index = Tensor::of(v, {static_cast<int64_t>(v.size())});
    auto queue = make_queue(2);
    IndexCheckArgs range;
    range.index = static_cast<const int32_t*>(index.read()), range.count = index.numel(), range.end = 10;
    range.ignored = -5, range.use = IndexCheckArgs::Use::kTarget;
    cuda_kernels().check_indices(*queue, range);
    ASSERT_EQ(queue->trap()->set, bad >= 0);
    if (bad >= 0) {
      EXPECT_EQ(queue->trap()->position, bad);
      EXPECT_EQ(queue->trap()->value, bad == 39999 ? 11 : 10);
      EXPECT_EQ(queue->trap()->use, static_cast<int32_t>(IndexCheckArgs::Use::kTarget));
      // The first that was met stays, whatever comes later.
      range.end = 3, range.use = IndexCheckArgs::Use::kEmbedding;
      cuda_kernels().check_indices(*queue, range);
      EXPECT_EQ(queue->trap()->position, bad);
    }
  }
}

// ----- Pooling -----

TEST(CudaPool, ForwardAndBackward) {
  for (DType dtype : kFloats)
    for (const auto& [window, stride] : {std::pair{2, 2}, std::pair{3, 2}, std::pair{3, 1}, std::pair{2, 3}})
      for (int64_t channels : {1, 8, 20}) {
        SCOPED_TRACE(str("window ", window, ", stride ", stride, ", ", channels, " channels of ", dtype));
        expect_equal([&, w = window, s = stride](const KernelTable& table, Parallel& where) {
          PoolArgs a;
          a.images = 2, a.height = 9, a.width = 8, a.channels = channels, a.window = w, a.stride = s, a.dtype = dtype;
          a.out_height = (9 - w) / s + 1, a.out_width = (8 - w) / s + 1;
          // Few values: many ties.
          const Tensor x = Tensor::empty({2, 9, 8, channels}, dtype);
          raw::copy(x, raw::cast(random_tensor({2, 9, 8, channels}, 1, 0, 4, DType::kFloat32), DType::kInt32));
          const Tensor y = Tensor::empty({2, a.out_height, a.out_width, channels}, dtype),
                       index = Tensor::empty(y.shape(), DType::kUInt8), dx = Tensor::empty(x.shape(), dtype),
                       g = random_tensor(y.shape(), 2, -1, 1, dtype);
          a.x = x.write(), a.y = y.write(), a.index = static_cast<uint8_t*>(index.write());
          table.max_pool(where, a);
          a.x = dx.write(), a.y = g.write();
          table.max_pool_backward(where, a);
          return Values{y.to_vector(), index.to_vector(), dx.to_vector()};
        });
      }
}

// ----- Values and sums -----

TEST(CudaValues, InitialValues) {
  for (bool normal : {false, true})
    for (const auto& [begin, end] : {std::pair{0, 5000}, std::pair{3, 4}, std::pair{1021, 3334}, std::pair{8, 8}})
      expect_equal([&, begin = begin, end = end](const KernelTable& table, Parallel& where) {
        std::vector<float> out(static_cast<size_t>(end - begin) + 1, -7.0f);
        InitialArgs a;
        a.normal = normal, a.scale = 0.02f, a.seed = 1234567890123u, a.site = 0xABCDEF0123456789u;
        a.begin = begin, a.end = end, a.out = out.data();
        table.initial(where, a);
        return Values{std::vector<double>(out.begin(), out.end())};
      });
}

TEST(CudaValues, InitialValuesOfABox) {
  for (bool normal : {false, true})
    for (const auto& [begin, end] : {std::pair{0, 5 * 3 * 70}, std::pair{31, 444}, std::pair{8, 8}})
      expect_equal([&, begin = begin, end = end](const KernelTable& table, Parallel& where) {
        std::vector<float> out(static_cast<size_t>(end - begin) + 1, -7.0f);
        InitialArgs a;
        a.normal = normal, a.scale = 0.02f, a.seed = 1234567890123u, a.site = 0xABCDEF0123456789u;
        a.begin = begin, a.end = end, a.out = out.data();
        a.dims = 3, a.first = 1013;
        a.extent[0] = 5, a.extent[1] = 3, a.extent[2] = 70;
        a.stride[0] = 2000, a.stride[1] = 333, a.stride[2] = 1;
        table.initial(where, a);
        return Values{std::vector<double>(out.begin(), out.end())};
      });
}

TEST(CudaValues, Store) {
  expect_equal([](const KernelTable& table, Parallel& where) {
    std::vector<float> out(StoreArgs::kMost, 9.0f);
    StoreArgs a;
    a.out = out.data(), a.count = 5;
    for (int i = 0; i < a.count; ++i) a.value[i] = 0.5f * static_cast<float>(i);
    table.store(where, a);
    return Values{std::vector<double>(out.begin(), out.end())};
  });
}

TEST(CudaSums, TreeAdd) {
  for (int64_t n : {0, 1, 8, 1001, 4096})
    expect_equal([&](const KernelTable& table, Parallel& where) {
      const Tensor sum = random_tensor({n + 1}, 1, -1, 1, DType::kFloat32),
                   other = random_tensor({n + 1}, 2, -1, 1, DType::kFloat32);
      table.tree_add(where, static_cast<float*>(sum.write()), static_cast<const float*>(other.read()), n);
      return Values{sum.to_vector()};
    });
}

TEST(CudaSums, NormsOfChunks) {
  for (int64_t n : {1, 9, 63, 64, 65, 1000, 20000})
    expect_equal([&](const KernelTable& table, Parallel& where) {
      const Tensor x = random_tensor({n}, 1, -1, 1, DType::kFloat32);
      std::vector<double> out(static_cast<size_t>(ceil_div(n, kStateChunk)) + 1, -7.0);
      table.chunk_norms(where, static_cast<const float*>(x.read()), n, out.data());
      return Values{out};
    });
}

TEST(CudaSums, Trees) {
  expect_equal([](const KernelTable& table, Parallel& where) {
    std::vector<int64_t> ranges;
    int64_t at = 0;
    for (int64_t n : {1, 2, 3, 5, 6, 7, 64, 100, 2047, 2048, 2049, 4097, 70001}) {
      ranges.insert(ranges.end(), {at, at + n});
      at += n;
    }
    const Tensor values = random_tensor({at}, 1, 0, 1, DType::kFloat64);
    std::vector<double> out(ranges.size() / 2);
    TreeSumsArgs a;
    a.values = static_cast<double*>(values.write()), a.ranges = ranges.data();
    a.count = static_cast<int64_t>(out.size()), a.out = out.data();
    table.tree_sums(where, a);
    return Values{out};
  });
}

// Of a plan as DataParallel makes it: 2 ranks, 3 micro-batches, parts of trees that join in several ways.
TEST(CudaSums, OutcomeOfAStep) {
  const double inf = INFINITY;
  struct Case {
    std::vector<std::pair<size_t, double>> changed;  // of the values
    double clip;
  };
  const Case cases[] = {{{}, 0},
                        {{}, 0.5},
                        {{{1, NAN}}, 0},
                        {{{9, inf}}, 1},
                        {{{300, -inf}}, 1},
                        {{{7, 1e200}, {8, 1e308}, {9, 1e308}}, 0},
                        {{{2, 0}, {4, 0}, {501, 0}}, 1},
                        {{{500, 1}}, 0},
                        {{{0, 1}, {500, 2}}, 0}};
  for (const Case& c : cases)
    expect_equal([&](const KernelTable& table, Parallel& where) {
      std::vector<double> values(700);
      for (size_t i = 0; i < values.size(); ++i) values[i] = 0.001 * static_cast<double>(i * 7919 % 1000 + 1);
      // Rank 0: stop, loss and targets twice, nodes; rank 1 from 499: the same of one micro-batch.
      values[0] = values[499] = 0, values[2] = 30, values[4] = 31, values[501] = 2;
      for (auto [at, v] : c.changed) values[at == 500 ? 499 : at] = v;
      const int tensors = 300;
      std::vector<int32_t> losses{1, 3, 500}, requests{0, 499}, first, nodes;
      for (int p = 0; p < tensors; ++p) {
        first.push_back(static_cast<int32_t>(nodes.size()) / 2);
        // One node; two that join; four: the third and fourth join, then both pairs; none.
        const std::vector<int> joins[] = {{0}, {0, 1}, {0, 1, 0, 2}, {}};
        for (int j : joins[p % 4]) {
          nodes.push_back(5 + static_cast<int>(nodes.size() * 13 % 490));
          nodes.push_back(j);
        }
      }
      first.push_back(static_cast<int32_t>(nodes.size()) / 2);
      StepOutcomeArgs a;
      a.values = values.data(), a.losses = losses.data(), a.requests = requests.data(), a.first = first.data();
      a.nodes = nodes.data(), a.micro_batches = 3, a.ranks = 2, a.tensors = tensors;
      a.nominal = 64, a.loss_scale = 4, a.clip_norm = c.clip;
      std::vector<double> out(StepOutcomeArgs::kCount);
      std::vector<float> verdict(UpdateControlArgs::kVerdict);
      a.out = out.data(), a.verdict = verdict.data();
      table.step_outcome(where, a);
      return Values{out, std::vector<double>(verdict.begin(), verdict.end())};
    });
}

TEST(CudaSums, ControlOfAnUpdate) {
  for (float unsettled : {0.0f, 1.0f})
    for (float skipped : {0.0f, 1.0f})
      expect_equal([&](const KernelTable& table, Parallel& where) {
        const float numbers[UpdateControlArgs::kCount] = {0.1f, unsettled, 0.2f, 0.3f, 0.4f, 0.5f};
        const float verdict[UpdateControlArgs::kVerdict] = {0.6f, 0.7f};
        std::vector<float> control(UpdateControl::kCount, 9.0f);
        control[UpdateControl::kSkip] = skipped;
        table.update_control(where, {numbers, verdict, control.data()});
        return Values{std::vector<double>(control.begin(), control.end())};
      });
}

// ----- Launches, and the stand-in itself -----

void half_barrier(int* ran) {
  ++*ran;
  if (threadIdx.x < 40) __syncthreads();
}
void shuffle_from_nowhere(float* out) { *out = __shfl_sync(0xFFFFFFFFu, *out, 25); }
void mixed_meeting() {
  if (threadIdx.x % 2) __syncwarp();
  else __ballot_sync(0xFFFFFFFFu, true);
}
void sum_of_block(int* out, int shared_of_block) {
  __shared__ int part[96];
  part[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncthreads();
  if (threadIdx.x == 0)
    for (int p : part) *out += p * shared_of_block;
}

TEST(CudaStandIn, ABarrierThatNotAllReachIsSeen) {
  auto queue = make_queue(1);
  int ran = 0;
  float value = 0;
  try {
    launch(half_barrier, *queue, 1, 64, &ran);
    ADD_FAILURE() << "it went through";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::kDevice);
    EXPECT_NE(std::string(error.what()).find("GPU 0: a kernel failed"), std::string::npos) << error.what();
  }
  EXPECT_EQ(ran, 64);
  EXPECT_NE(cuda_stand_in::failure().find("40 of 64 threads wait at a barrier"), std::string::npos);
  EXPECT_THROW(launch(shuffle_from_nowhere, *queue, 1, 20, &value), Error);
  EXPECT_NE(cuda_stand_in::failure().find("a lane that is not there: 25"), std::string::npos);
  EXPECT_THROW(launch(mixed_meeting, *queue, 1, 32), Error);
  EXPECT_NE(cuda_stand_in::failure().find("different calls"), std::string::npos);
  int sum = 0;
  launch(sum_of_block, *queue, 3, 96, &sum, 2);
  EXPECT_EQ(sum, 3 * 2 * (95 * 96 / 2)) << "afterwards all is well";
}

void count_runs(int* ran) { ++*ran; }

// What a kernel was allowed once, no smaller launch takes back.
TEST(CudaLaunch, SharedMemory) {
  auto queue = make_queue(1);
  const int64_t most = most_shared(*queue), free = Grid::kMostShared;
  ASSERT_GT(most, free + 16);
  const auto allowed = [] { return cuda_stand_in::shared_bytes_of(reinterpret_cast<const void*>(count_runs)); };
  int ran = 0;
  launch(count_runs, *queue, Grid{1, 1, free}, &ran);
  EXPECT_EQ(allowed(), free) << "nothing was asked for";
  for (int64_t bytes : {free + 16, most, free + 16, free}) {
    launch(count_runs, *queue, Grid{1, 1, bytes}, &ran);
    EXPECT_EQ(allowed(), most) << bytes;
  }
  EXPECT_EQ(ran, 5);
  EXPECT_THROW(launch(count_runs, *queue, Grid{1, 1, most + 16}, &ran), Error);
}

TEST(CudaLaunch, AGridThatCannotBe) {
  auto queue = make_queue(1);
  EXPECT_THROW(launch(mixed_meeting, *queue, 1, 2048), Error);
  launch(mixed_meeting, *queue, 0, 32);  // nothing to do
}

}  // namespace
}  // namespace lockstep::cuda_kernels_test
