// The row-wise kernels of a GPU on a stand-in for CUDA, against the CPU's generic level: rows that a warp takes, that a
// block takes, that are kept near, and that are too long for it. And rotary embeddings.
#include <gtest/gtest.h>

#include "tests/core/device/on_stand_in.h"

namespace lockstep::cuda_rows_test {
namespace {

using namespace testing;

constexpr int64_t kLengths[] = {1, 7, 8, 33, 250, 1000, 1024, 1025, 1600, 6144, 6200, 8192, 12288, 13000, 24576};

TEST(CudaRows, NormsSoftmaxAndSums) {
  for (DType dtype : kFloats)
    for (int64_t cols : kLengths) {
      SCOPED_TRACE(str(cols, " columns of ", dtype));
      const int64_t rows = cols < 300 ? 37 : 5;
      const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
      const double tolerance = rounding_of(dtype);
      const Tensor x = random_tensor({rows, cols}, 1, -2, 2, dtype), g = random_tensor({rows, cols}, 2, -1, 1, dtype),
                   w = random_tensor({cols}, 3, 0.5, 2, dtype), b = random_tensor({cols}, 4, -1, 1, dtype),
                   add = random_tensor({rows, cols}, 5, -1, 1, dtype);
      for (bool bias : {false, true})
        expect_near(
            [&](const KernelTable& table, Parallel& where) {
              const Tensor y = Tensor::empty({rows, cols}, dtype), mean = Tensor::empty({rows}, wide),
                           rstd = Tensor::empty({rows}, wide), dx = Tensor::empty({rows, cols}, dtype);
              using F = LayerNormRows;
              RowArgs a;
              a.rows = rows, a.cols = cols, a.epsilon = 1e-5;
              a[F::kX] = raw::rows_of(x, cols), a[F::kWeight] = raw::same_row(w);
              if (bias) a[F::kBias] = raw::same_row(b);
              a[F::kY] = raw::write_rows(y, cols);
              a[F::kMean] = raw::write_one_per_row(mean), a[F::kRstd] = raw::write_one_per_row(rstd);
              table.row(where, RowOp::kLayerNorm, a);
              using B = LayerNormBackwardRows;
              RowArgs d;
              d.rows = rows, d.cols = cols;
              d[B::kG] = raw::rows_of(g, cols), d[B::kX] = raw::rows_of(x, cols), d[B::kWeight] = raw::same_row(w);
              d[B::kMean] = raw::one_per_row(mean), d[B::kRstd] = raw::one_per_row(rstd);
              if (bias) d[B::kAddend] = raw::rows_of(add, cols);
              d[B::kDx] = raw::write_rows(dx, cols);
              if (cols > 1) table.row(where, RowOp::kLayerNormBackward, d);  // of one column: a difference of roundings
              else raw::fill(dx, 0);
              return Values{y.to_vector(), mean.to_vector(), rstd.to_vector(), dx.to_vector()};
            },
            4 * tolerance);
      for (bool addend : {false, true})
        expect_near(
            [&](const KernelTable& table, Parallel& where) {
              const Tensor y = Tensor::empty({rows, cols}, dtype), rstd = Tensor::empty({rows}, wide),
                           dx = Tensor::empty({rows, cols}, dtype), dw = Tensor::empty({cols}, wide);
              using F = RmsNormRows;
              RowArgs a;
              a.rows = rows, a.cols = cols, a.epsilon = 1e-5;
              a[F::kX] = raw::rows_of(x, cols), a[F::kWeight] = raw::same_row(w);
              a[F::kY] = raw::write_rows(y, cols), a[F::kRstd] = raw::write_one_per_row(rstd);
              table.row(where, RowOp::kRmsNorm, a);
              using B = RmsNormBackwardRows;
              RowArgs d;
              d.rows = rows, d.cols = cols;
              d[B::kG] = raw::rows_of(g, cols), d[B::kX] = raw::rows_of(x, cols), d[B::kWeight] = raw::same_row(w);
              d[B::kRstd] = raw::one_per_row(rstd), d[B::kDx] = raw::write_rows(dx, cols);
              if (addend) d[B::kAddend] = raw::rows_of(add, cols);
              if (cols > 1) table.row(where, RowOp::kRmsNormBackward, d);  // of one column: a difference of roundings
              else raw::fill(dx, 0);
              NormColumnsArgs c;
              c.rows = rows, c.cols = cols, c.g = g.read(), c.x = x.read(), c.g_dtype = c.x_dtype = dtype;
              c.rstd = rstd.read(), c.dweight = dw.write(), c.dweight_dtype = wide;
              table.norm_columns(where, c);
              return Values{y.to_vector(), rstd.to_vector(), dx.to_vector(), dw.to_vector()};
            },
            4 * tolerance);
      expect_near(
          [&](const KernelTable& table, Parallel& where) {
            const Tensor y = Tensor::empty({rows, cols}, dtype), dx = Tensor::empty({rows, cols}, dtype),
                         sum = Tensor::empty({rows}, wide), max = Tensor::empty({rows}, dtype),
                         norm = Tensor::empty({rows}, DType::kFloat64);
            RowArgs a;
            a.rows = rows, a.cols = cols;
            a[SoftmaxRows::kX] = raw::rows_of(x, cols);
            a[SoftmaxRows::kY] = raw::write_rows(y, cols);
            table.row(where, RowOp::kSoftmax, a);
            for (const auto& [op, result] :
                 {std::pair{RowOp::kSum, sum}, {RowOp::kMax, max}, {RowOp::kNormSquared, norm}}) {
              a[ReduceRows::kResult] = raw::write_one_per_row(result);
              table.row(where, op, a);
            }
            using B = SoftmaxBackwardRows;
            a[B::kG] = raw::rows_of(g, cols), a[B::kY] = raw::rows_of(x, cols);
            a[B::kDx] = raw::write_rows(dx, cols);
            table.row(where, RowOp::kSoftmaxBackward, a);
            return Values{y.to_vector(), sum.to_vector(), max.to_vector(), norm.to_vector(), dx.to_vector()};
          },
          16 * tolerance);
    }
}

TEST(CudaRows, LogSoftmaxAndSelections) {
  for (DType dtype : kFloats)
    for (int64_t cols : {1, 7, 8, 33, 250, 1025, 6200, 24576}) {
      SCOPED_TRACE(str(cols, " columns of ", dtype));
      const int64_t rows = cols < 300 ? 37 : 3, top = std::min<int64_t>(cols, 4);
      const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
      const Tensor x = random_tensor({rows, cols}, 1, -2, 2, dtype), g = random_tensor({rows, cols}, 2, -1, 1, dtype);
      RowArgs a;
      a.rows = rows, a.cols = cols, a.top = top;
      expect_near(
          [&](const KernelTable& table, Parallel& where) {
            const Tensor y = Tensor::empty({rows, cols}, dtype), dx = Tensor::empty({rows, cols}, dtype);
            RowArgs r = a;
            r[MapRows::kX] = raw::rows_of(x, cols), r[MapRows::kY] = raw::write_rows(y, cols);
            table.row(where, RowOp::kLogSoftmax, r);
            using B = LogSoftmaxBackwardRows;
            r[B::kG] = raw::rows_of(g, cols), r[B::kY] = raw::rows_of(x, cols), r[B::kDx] = raw::write_rows(dx, cols);
            table.row(where, RowOp::kLogSoftmaxBackward, r);
            return Values{y.to_vector(), dx.to_vector()};
          },
          16 * rounding_of(dtype));
      expect_equal([&](const KernelTable& table, Parallel& where) {
        const Tensor index = Tensor::empty({rows, top}, DType::kInt32), picked = Tensor::empty({rows, top}, dtype),
                     sums = Tensor::full({rows, cols}, 0.5, wide), both = Tensor::empty({rows, cols}, dtype),
                     back = Tensor::empty({rows, cols}, dtype);
        RowArgs r = a;
        r[TopIndicesRows::kX] = raw::rows_of(x, cols), r[TopIndicesRows::kIndex] = raw::write_rows(index, top);
        table.row(where, RowOp::kTopIndices, r);
        RowArgs p;
        p.rows = rows, p.cols = top;
        p[PickRows::kX] = raw::rows_of(x, cols), p[PickRows::kIndex] = raw::rows_of(index, top);
        p[PickRows::kY] = raw::write_rows(picked, top);
        table.row(where, RowOp::kPick, p);
        p[AddAtRows::kX] = raw::rows_of(picked, top), p[AddAtRows::kY] = raw::write_rows(sums, cols);
        table.row(where, RowOp::kAddAt, p);
        table.row(where, RowOp::kAddAt, p);
        for (bool backwards : {false, true}) {
          r.backwards = backwards;
          r[MapRows::kX] = raw::rows_of(x, cols), r[MapRows::kY] = raw::write_rows(backwards ? back : both, cols);
          table.row(where, RowOp::kCumulate, r);
        }
        return Values{index.to_vector(), picked.to_vector(), sums.to_vector(), both.to_vector(), back.to_vector()};
      });
    }
}

// Several additions to one element go in order; what lies outside is passed over and read as 0.
TEST(CudaRows, IndicesThatRepeatAndThatLieOutside) {
  const Tensor x = random_tensor({2, 6}, 1, -1, 1, DType::kFloat32);
  const std::vector<int32_t> at{2, 0, 2, 2, 0, 1, 2, 2, -1, 3, 0, 0};
  const Tensor index = Tensor::of(at, {2, 6});
  const Values got = on_gpu([&](const KernelTable& table, Parallel& where) {
    const Tensor sums = Tensor::zeros({2, 3}), picked = Tensor::empty({2, 6});
    RowArgs r;
    r.rows = 2, r.cols = 6;
    r[AddAtRows::kX] = raw::rows_of(x, 6), r[AddAtRows::kIndex] = raw::rows_of(index, 6);
    r[AddAtRows::kY] = raw::write_rows(sums, 3);
    table.row(where, RowOp::kAddAt, r);
    r[PickRows::kX] = raw::rows_of(sums, 3), r[PickRows::kY] = raw::write_rows(picked, 6);
    table.row(where, RowOp::kPick, r);
    return Values{sums.to_vector(), picked.to_vector()};
  });
  const std::vector<float> v = x.to_vector<float>();
  std::vector<float> sums(6);
  for (size_t i = 0; i < 12; ++i)
    if (at[i] >= 0 && at[i] < 3) sums[i / 6 * 3 + static_cast<size_t>(at[i])] += v[i];
  for (size_t i = 0; i < 6; ++i) EXPECT_EQ(got[0][i], static_cast<double>(sums[i]));
  for (size_t i = 0; i < 12; ++i)
    EXPECT_EQ(got[1][i], at[i] >= 0 && at[i] < 3 ? got[0][i / 6 * 3 + static_cast<size_t>(at[i])] : 0.0);
}

constexpr int64_t kClasses[] = {7, 96, 1000, 5003, 12288, 14002, 17000, 24576}, kCrossRows = 6;
// Ignored, and outside: that one is passed over until the check of the range is looked at.
Tensor targets_among(int64_t classes) {
  return Tensor::of(std::vector<int32_t>{0, 6, -1, 3, static_cast<int32_t>(classes) - 1, 2}, {kCrossRows});
}

TEST(CudaRows, CrossEntropyAndItsGradientInPlace) {
  for (DType dtype : kFloats)
    for (int64_t cols : kClasses) {
      SCOPED_TRACE(str(cols, " columns of ", dtype));
      const int64_t rows = kCrossRows;
      const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
      const Tensor x = random_tensor({rows, cols}, 1, -4, 4, dtype);
      const Tensor target = targets_among(cols);
      const double smoothing = cols % 3 == 1 ? 0.1 : 0;
      for (bool in_place : {false, true})
        expect_near(
            [&](const KernelTable& table, Parallel& where) {
              const Tensor logits = Tensor::empty({rows, cols}, dtype), loss = Tensor::empty({rows}, wide),
                           lse = Tensor::empty({rows}, wide), g = random_tensor({1}, 2, 0.5, 1, wide);
              raw::copy(logits, x);
              const Tensor dx = in_place ? logits : Tensor::empty({rows, cols}, dtype);
              using F = CrossEntropyRows;
              using B = CrossEntropyBackwardRows;
              RowArgs a;
              a.rows = rows, a.cols = cols, a.ignored_target = -1, a.label_smoothing = smoothing;
              a[F::kLogits] = raw::rows_of(logits, cols), a[F::kTarget] = raw::one_per_row(target);
              a[F::kLoss] = raw::write_one_per_row(loss), a[F::kLse] = raw::write_one_per_row(lse);
              table.row(where, RowOp::kCrossEntropy, a);
              a[B::kLse] = raw::one_per_row(lse), a[B::kG] = raw::one_per_row(g);
              a[B::kDlogits] = raw::write_rows(dx, cols);
              table.row(where, RowOp::kCrossEntropyBackward, a);
              return Values{loss.to_vector(), lse.to_vector(), dx.to_vector()};
            },
            4 * rounding_of(dtype));
    }
}

TEST(CudaRows, CrossEntropyOfLogitsFarApart) {
  constexpr int64_t kCols = 5003;
  std::vector<float> logits(2 * kCols, -INFINITY);  // one row of -inf but for two, one that ends in large ones
  logits[10] = 3, logits[4000] = 2;
  for (int64_t i = 0; i < kCols; ++i) logits[static_cast<size_t>(kCols + i)] = static_cast<float>(i < 4990 ? -80 : 80);
  const Tensor x = Tensor::of(std::move(logits), {2, kCols}), target = Tensor::of(std::vector<int32_t>{10, 5000}, {2});
  expect_near(
      [&](const KernelTable& table, Parallel& where) {
        const Tensor dx = Tensor::empty({2, kCols}), loss = Tensor::empty({2});
        using F = CrossEntropyInOnePassRows;
        RowArgs a;
        a.rows = 2, a.cols = kCols, a.ignored_target = -1, a.loss_gradient = 0.5;
        a[F::kLogits] = raw::rows_of(x, kCols), a[F::kTarget] = raw::one_per_row(target);
        a[F::kDlogits] = raw::write_rows(dx, kCols), a[F::kLoss] = raw::write_one_per_row(loss);
        table.row(where, RowOp::kCrossEntropyInOnePass, a);
        return Values{loss.to_vector(), dx.to_vector()};
      },
      1e-6);
}

// Each device's own bits: what is done in one pass, and the same in two.
void expect_equal_on_each(const Work& one, const Work& two) {
  expect_same(on_cpu(two), on_cpu(one));
  expect_same(on_gpu(two), on_gpu(one));
}

TEST(CudaRows, AdditionAndNormInOnePass) {
  for (DType dtype : kFloats)
    for (int64_t cols : kLengths)
      for (bool bias : {false, true}) {
        SCOPED_TRACE(str(cols, " columns of ", dtype, bias ? " with bias" : ""));
        const int64_t rows = cols < 300 ? 37 : 5;
        const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
        const Tensor a = random_tensor({rows, cols}, 1, -2, 2, dtype), b = random_tensor({rows, cols}, 2, -1, 1, dtype),
                     w = random_tensor({cols}, 3, 0.5, 2, dtype), of_bias = random_tensor({cols}, 4, -1, 1, dtype);
        auto work = [&](bool one) {
          return [&, one](const KernelTable& table, Parallel& where) {
            const Tensor x = Tensor::empty({rows, cols}, dtype), y = Tensor::empty({rows, cols}, dtype),
                         mean = Tensor::empty({rows}, wide), rstd = Tensor::empty({rows}, wide);
            using F = AddLayerNormRows;
            RowArgs r;
            r.rows = rows, r.cols = cols, r.epsilon = 1e-5;
            r[F::kWeight] = raw::same_row(w);
            if (bias) r[F::kBias] = raw::same_row(of_bias);
            r[F::kY] = raw::write_rows(y, cols);
            r[F::kMean] = raw::write_one_per_row(mean), r[F::kRstd] = raw::write_one_per_row(rstd);
            if (one) {
              r[F::kA] = raw::rows_of(a, cols), r[F::kB] = raw::rows_of(b, cols);
              r[F::kSum] = raw::write_rows(x, cols);
              table.row(where, RowOp::kAddLayerNorm, r);
            } else {
              table.pointwise(where, PointwiseOp::kAdd, args_of(x, {a, b}));
              r[F::kX] = raw::rows_of(x, cols);
              table.row(where, RowOp::kLayerNorm, r);
            }
            return Values{x.to_vector(), y.to_vector(), mean.to_vector(), rstd.to_vector()};
          };
        };
        expect_equal_on_each(work(true), work(false));
      }
}

TEST(CudaRows, CrossEntropyAndItsGradientInOnePass) {
  for (DType dtype : kFloats)
    for (int64_t cols : kClasses) {
      SCOPED_TRACE(str(cols, " columns of ", dtype));
      const int64_t rows = kCrossRows;
      const DType wide = dtype == DType::kFloat64 ? dtype : DType::kFloat32;
      const Tensor x = random_tensor({rows, cols}, 1, -4, 4, dtype), g = random_tensor({1}, 2, 0.5, 1, wide);
      const Tensor target = targets_among(cols);
      const double smoothing = cols % 3 == 1 ? 0.1 : 0;
      auto work = [&](bool one, double predicted) {
        return [&, one, predicted](const KernelTable& table, Parallel& where) {
          const Tensor dx = Tensor::empty({rows, cols}, dtype), loss = Tensor::empty({rows}, wide),
                       lse = Tensor::empty({rows}, wide);
          raw::copy(dx, x);
          using F = CrossEntropyRows;
          using B = CrossEntropyBackwardRows;
          RowArgs a;
          a.rows = rows, a.cols = cols, a.ignored_target = -1, a.label_smoothing = smoothing;
          a[F::kLogits] = raw::rows_of(dx, cols), a[F::kTarget] = raw::one_per_row(target);
          if (one) {
            using One = CrossEntropyInOnePassRows;
            a.loss_gradient = predicted;
            a[One::kDlogits] = raw::write_rows(dx, cols), a[One::kLoss] = raw::write_one_per_row(loss);
            table.row(where, RowOp::kCrossEntropyInOnePass, a);
            a[RescaleRows::kG] = raw::one_per_row(g);
            table.row(where, RowOp::kRescale, a);
          } else {
            a[F::kLoss] = raw::write_one_per_row(loss), a[F::kLse] = raw::write_one_per_row(lse);
            table.row(where, RowOp::kCrossEntropy, a);
            a[B::kLse] = raw::one_per_row(lse), a[B::kG] = raw::one_per_row(g);
            a[B::kDlogits] = raw::write_rows(dx, cols);
            table.row(where, RowOp::kCrossEntropyBackward, a);
          }
          return Values{loss.to_vector(), dx.to_vector()};
        };
      };
      const double known = g.item();
      expect_equal_on_each(work(true, known), work(false, known));
      expect_near(work(true, 0.9 * known), 4 * rounding_of(dtype));
      if (dtype == DType::kFloat32) expect_equal_on_each(work(true, 0.5 * known), work(false, known));
    }
}

TEST(CudaRows, RotaryHasTheBitsOfTheCpu) {
  for (DType dtype : kFloats)
    for (const auto& [time, heads, dim] : {std::tuple{1, 1, 2}, std::tuple{40, 3, 6}, std::tuple{130, 2, 64}})
      for (bool back : {false, true})
        expect_equal([&, dtype, back, time = time, heads = heads, dim = dim](const KernelTable& table,
                                                                             Parallel& where) {
          const Tensor x = random_tensor({2, time, heads, dim}, 1, -1, 1, dtype), y = Tensor::empty(x.shape(), dtype);
          RotaryArgs a;
          a.batch = 2, a.time = time, a.heads = heads, a.dim = dim, a.dtype = dtype, a.back = back;
          a.x = x.read(), a.y = y.write();
          const std::vector<int32_t> starts{3, 41};
          if (dim == 6) a.starts = starts.data();
          a.pairs = dim == 64 ? 12 : dim / 2;
          for (int i = 0; i < a.pairs; ++i) a.frequencies[i] = std::pow(500.0, -2.0 * i / dim);
          table.rotary(where, a);
          return Values{y.to_vector()};
        });
}

// What each row's random numbers are a function of: 4 rows of each of three samples.
RowArgs random_rows(int64_t cols) {
  RowArgs a;
  a.rows = 12, a.cols = cols, a.rows_per_sample = 4;
  a.seed = 1, a.step = 2, a.site = 3;
  return a;
}
const std::vector<int64_t> kSamples{5, 6, 9};

TEST(CudaRows, Dropout) {
  for (DType dtype : kFloats)
    for (int64_t cols : {3, 8, 90, 1100})
      expect_equal([&, dtype](const KernelTable& table, Parallel& where) {
        RowArgs a = random_rows(cols);
        const Tensor x = random_tensor({a.rows, cols}, 1, -1, 1, dtype), y = Tensor::empty({a.rows, cols}, dtype),
                     samples = Tensor::of(kSamples, {3});
        a.drop_probability = 0.3;
        a[DropoutRows::kX] = raw::rows_of(x, cols);
        a[DropoutRows::kSamples] = raw::same_row(samples);
        a[DropoutRows::kY] = raw::write_rows(y, cols);
        table.row(where, RowOp::kDropout, a);
        return Values{y.to_vector()};
      });
}

TEST(CudaRows, RandomNumbers) {
  for (DType dtype : kFloats)
    for (int64_t cols : {1, 3, 8, 90, 1100})
      for (RowOp op : {RowOp::kRandn, RowOp::kUniform})
        expect_equal([&, dtype](const KernelTable& table, Parallel& where) {
          RowArgs a = random_rows(cols);
          const Tensor y = Tensor::empty({a.rows, cols}, dtype), samples = Tensor::of(kSamples, {3});
          a[RandomRows::kSamples] = raw::same_row(samples);
          a[RandomRows::kY] = raw::write_rows(y, cols);
          table.row(where, op, a);
          return Values{y.to_vector()};
        });
}

}  // namespace
}  // namespace lockstep::cuda_rows_test
