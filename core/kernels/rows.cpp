// The row-wise functors: norms, softmax, cross-entropy, dropout, row reductions. Single source: host levels and CUDA.
#include "core/kernels/rows.h"
#include "core/base/philox.h"
#include "core/kernels/apply.h"
#include "core/kernels/initial.h"

namespace lockstep::inline LOCKSTEP_ISA {
namespace {

// y = (x - mean) * rstd * weight + bias; Ba et al. 2016. Mean and variance in two passes: no cancellation. `sum`: of x.
template <class T, class Row, class X>
HD void normalise(Row& row, const X& x, T sum) {
  using N = LayerNormRows;
  const int64_t n = row.args.cols;
  auto w = row.in(N::kWeight);
  auto y = row.out(N::kY);
  const T inverse = T(1) / static_cast<T>(n);
  const T mean = sum * inverse;
  const T variance = row.sum(n, [&](int64_t i) -> T {
    T d = x[i] - mean;
    return d * d;
  }) * inverse;
  const T rstd = T(1) / sqrt_of(variance + static_cast<T>(row.args.epsilon));
  if (row.has(N::kBias)) {
    auto b = row.in(N::kBias);
    row.each(n, [&](int64_t i) { y[i] = fused((x[i] - mean) * rstd, w[i], b[i]); });
  } else {
    row.each(n, [&](int64_t i) { y[i] = (x[i] - mean) * rstd * w[i]; });
  }
  row.out_value(N::kMean, mean);
  row.out_value(N::kRstd, rstd);
}

struct LayerNorm : LayerNormRows {
  static constexpr unsigned kKept = operand_bit(kX),
                            kPassed = operand_bit(kWeight) | operand_bit(kBias) | operand_bit(kY);
  template <class T, class Row>
  HD static void run(Row& row) {
    auto x = row.in(kX);
    normalise<T>(row, x, row.sum(row.args.cols, [&](int64_t i) -> T { return x[i]; }));
  }
};

// x = a + b is rounded to its type before it is normalised: the bits of an addition and a norm one after the other.
struct AddLayerNorm : AddLayerNormRows {
  static constexpr unsigned kKept = operand_bit(kSum), kPassed = operand_bit(kA) | operand_bit(kWeight) |
                                                                 operand_bit(kBias) | operand_bit(kB) | operand_bit(kY);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    auto a = row.in(kA);
    auto b = row.in(kB);
    auto x = row.out(kSum);
    row.each(n, [&](int64_t i) { x[i] = a[i] + b[i]; });
    row.settle(kSum);
    normalise<T>(row, x, row.sum(n, [&](int64_t i) -> T { return x[i]; }));
  }
};

// dx = rstd * (g w - mean(g w) - xhat mean(g w xhat)) (+ addend)
struct LayerNormBackward : LayerNormBackwardRows {
  static constexpr int kWholeBlocks = 4;
  static constexpr unsigned kKept = operand_bit(kG) | operand_bit(kX),
                            kPassed = operand_bit(kWeight) | operand_bit(kAddend) | operand_bit(kDx);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    auto g = row.in(kG);
    auto x = row.in(kX);
    auto w = row.in(kWeight);
    const T mean = row.in_value(kMean), rstd = row.in_value(kRstd);
    auto dx = row.out(kDx);
    const T inverse = T(1) / static_cast<T>(n);
    const T a = row.sum(n, [&](int64_t i) -> T { return g[i] * w[i]; }) * inverse;
    const T b = row.sum(n, [&](int64_t i) -> T { return g[i] * w[i] * ((x[i] - mean) * rstd); }) * inverse;
    if (row.has(kAddend)) {
      auto add = row.in(kAddend);
      row.each(n, [&](int64_t i) { dx[i] = add[i] + rstd * (g[i] * w[i] - a - (x[i] - mean) * rstd * b); });
    } else {
      row.each(n, [&](int64_t i) { dx[i] = rstd * (g[i] * w[i] - a - (x[i] - mean) * rstd * b); });
    }
  }
};

// y = x / sqrt(mean(x^2) + epsilon) * weight; Zhang and Sennrich 2019.
struct RmsNorm : RmsNormRows {
  static constexpr unsigned kKept = operand_bit(kX), kPassed = operand_bit(kWeight) | operand_bit(kY);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    auto x = row.in(kX);
    auto w = row.in(kWeight);
    auto y = row.out(kY);
    const T square = row.sum(n, [&](int64_t i) -> T { return x[i] * x[i]; }) * (T(1) / static_cast<T>(n));
    const T rstd = T(1) / sqrt_of(square + static_cast<T>(row.args.epsilon));
    row.each(n, [&](int64_t i) { y[i] = x[i] * rstd * w[i]; });
    row.out_value(kRstd, rstd);
  }
};

// dx = rstd * (g w - xhat mean(g w xhat)) (+ addend)
struct RmsNormBackward : RmsNormBackwardRows {
  static constexpr int kWholeBlocks = 5;
  static constexpr unsigned kKept = operand_bit(kG) | operand_bit(kX),
                            kPassed = operand_bit(kWeight) | operand_bit(kAddend) | operand_bit(kDx);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    auto g = row.in(kG);
    auto x = row.in(kX);
    auto w = row.in(kWeight);
    const T rstd = row.in_value(kRstd);
    auto dx = row.out(kDx);
    const T b = row.sum(n, [&](int64_t i) -> T { return g[i] * w[i] * (x[i] * rstd); }) * (T(1) / static_cast<T>(n));
    if (row.has(kAddend)) {
      auto add = row.in(kAddend);
      row.each(n, [&](int64_t i) { dx[i] = add[i] + rstd * (g[i] * w[i] - x[i] * rstd * b); });
    } else {
      row.each(n, [&](int64_t i) { dx[i] = rstd * (g[i] * w[i] - x[i] * rstd * b); });
    }
  }
};

struct Softmax : SoftmaxRows {
  static constexpr unsigned kKept = operand_bit(kX) | operand_bit(kY), kPassed = 0;
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    auto x = row.in(kX);
    auto y = row.out(kY);
    const T max = row.max(n, [&](int64_t i) -> T { return x[i]; });
    const T sum = row.sum(n, [&](int64_t i) -> T {
      T e = exp_of(x[i] - max);
      y[i] = e;
      return e;
    });
    const T inverse = T(1) / sum;
    row.each(n, [&](int64_t i) { y[i] = T(y[i]) * inverse; });
  }
};

struct SoftmaxBackward : SoftmaxBackwardRows {
  static constexpr unsigned kKept = operand_bit(kG) | operand_bit(kY), kPassed = operand_bit(kDx);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    auto g = row.in(kG);
    auto y = row.in(kY);
    auto dx = row.out(kDx);
    const T dot = row.sum(n, [&](int64_t i) -> T { return g[i] * y[i]; });
    row.each(n, [&](int64_t i) { dx[i] = y[i] * (g[i] - dot); });
  }
};

template <class T, class Row, class X>
HD T log_sum_exp(Row& row, const X& x) {
  const int64_t n = row.args.cols;
  const T max = row.max(n, [&](int64_t i) -> T { return x[i]; });
  const T sum = row.sum(n, [&](int64_t i) -> T { return exp_of(x[i] - max); });
  return max + log_of(sum);
}

// x[target], or with label smoothing its mean with all of x, weighted by their shares of the target.
template <class T, class Row, class X>
HD T smoothed(Row& row, const X& x, T at_target) {
  const double share = row.args.label_smoothing;
  if (share == 0) return at_target;
  const T sum = row.sum(row.args.cols, [&](int64_t i) -> T { return x[i]; });
  return static_cast<T>(1 - share) * at_target + static_cast<T>(share / static_cast<double>(row.args.cols)) * sum;
}

// loss = log(sum exp(x)) - x[target]; 0 where the target is the ignored one.
struct CrossEntropy : CrossEntropyRows {
  static constexpr unsigned kKept = operand_bit(kLogits), kPassed = 0;
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t target = row.in_integer(kTarget);
    auto x = row.in(kLogits);
    const T lse = log_sum_exp<T>(row, x);
    row.out_value(kLse, lse);
    if (target == row.args.ignored_target) row.out_value(kLoss, T(0));
    else row.out_value(kLoss, lse - smoothed<T>(row, x, row.in_value(kLogits, target)));
  }
};

// dx = g * (softmax(x) - target's share of each class), which is 0 or 1 without label smoothing; 0 for an ignored row.
template <class T, class Row, class X, class Dx>
HD void cross_entropy_gradient(Row& row, const X& x, Dx& dx, T lse, T g, int64_t target) {
  const double share = row.args.label_smoothing, of_all = share / static_cast<double>(row.args.cols);
  const T others = static_cast<T>(of_all), own = static_cast<T>(1 - share + of_all);
  row.each(row.args.cols, [&](int64_t i) { dx[i] = g * (exp_of(x[i] - lse) - (i == target ? own : others)); });
}

struct CrossEntropyBackward : CrossEntropyBackwardRows {
  static constexpr unsigned kKept = 0, kPassed = operand_bit(kLogits) | operand_bit(kDlogits);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t target = row.in_integer(kTarget);
    const bool ignored = target == row.args.ignored_target;
    auto x = row.in(kLogits);
    auto dx = row.out(kDlogits);
    const T lse = row.in_value(kLse), g = row.in_value(kG);
    if (ignored) row.each(row.args.cols, [&](int64_t i) { dx[i] = T(0); });
    else cross_entropy_gradient<T>(row, x, dx, lse, g, target);
  }
};

struct CrossEntropyInOnePass : CrossEntropyInOnePassRows {
  static constexpr unsigned kKept = operand_bit(kLogits), kPassed = operand_bit(kDlogits);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t target = row.in_integer(kTarget);
    auto dx = row.out(kDlogits);
    if (target == row.args.ignored_target) {
      row.each(row.args.cols, [&](int64_t i) { dx[i] = T(0); });
      row.out_value(kLoss, T(0));
      return;
    }
    auto x = row.in(kLogits);
    const T at_target = row.in_value(kLogits, target);  // before dx, which may lie there, is written
    const T lse = log_sum_exp<T>(row, x);
    row.out_value(kLoss, lse - smoothed<T>(row, x, at_target));
    cross_entropy_gradient<T>(row, x, dx, lse, static_cast<T>(row.args.loss_gradient), target);
  }
};

struct Rescale : RescaleRows {
  static constexpr unsigned kKept = 0, kPassed = operand_bit(kX) | operand_bit(kY);
  template <class T, class Row>
  HD static void run(Row& row) {
    const T g = row.in_value(kG), before = static_cast<T>(row.args.loss_gradient);
    if (g == before) return;
    const T ratio = g / before;
    auto x = row.in(kX);
    auto y = row.out(kY);
    row.each(row.args.cols, [&](int64_t i) { y[i] = x[i] * ratio; });
  }
};

struct LogSoftmax : MapRows {
  static constexpr unsigned kKept = operand_bit(kX), kPassed = operand_bit(kY);
  template <class T, class Row>
  HD static void run(Row& row) {
    auto x = row.in(kX);
    auto y = row.out(kY);
    const T lse = log_sum_exp<T>(row, x);
    row.each(row.args.cols, [&](int64_t i) { y[i] = x[i] - lse; });
  }
};

struct LogSoftmaxBackward : LogSoftmaxBackwardRows {
  static constexpr unsigned kKept = operand_bit(kG), kPassed = operand_bit(kY) | operand_bit(kDx);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    auto g = row.in(kG);
    auto y = row.in(kY);
    auto dx = row.out(kDx);
    const T sum = row.sum(n, [&](int64_t i) -> T { return g[i]; });
    row.each(n, [&](int64_t i) { dx[i] = g[i] - exp_of(y[i]) * sum; });
  }
};

// One after another: the largest of those that come after the one before, by value and then by index. NaN counts as
// infinity. Indices are exact in fp32 up to 2^24.
struct TopIndices : TopIndicesRows {
  static constexpr unsigned kKept = operand_bit(kX), kPassed = 0;
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    const T infinity = T(INFINITY);
    auto x = row.in(kX);
    T value = infinity, index = T(-1);  // of the one before
    for (int64_t k = 0; k < row.args.top; ++k) {
      const auto candidate = [&](int64_t i, T& v) {
        v = x[i];
        v = v != v ? infinity : v;
        return v < value || (v == value && static_cast<T>(i) > index);
      };
      const T largest = row.max(n, [&](int64_t i) -> T {
        T v;
        return candidate(i, v) ? v : -infinity;
      });
      const T first = -row.max(n, [&](int64_t i) -> T {
        T v;
        return candidate(i, v) && v == largest ? static_cast<T>(-i) : -infinity;
      });
      row.out_index(kIndex, k, static_cast<int32_t>(first));
      value = largest, index = first;
    }
  }
};

struct Pick : PickRows {
  static constexpr unsigned kKept = 0, kPassed = 0;
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    row.each(n, [&](int64_t i) {
      if (i < n) row.out_at(kY, i, row.in_at(kX, row.in_integer(kIndex, i)));
    });
  }
};

struct AddAt : AddAtRows {
  static constexpr unsigned kKept = 0, kPassed = 0;
  template <class T, class Row>
  HD static void run(Row& row) {
    row.in_order(row.args.cols, [&](int64_t i) { row.add_at(kY, row.in_integer(kIndex, i), row.in_value(kX, i)); });
  }
};

struct Cumulate : MapRows {
  static constexpr unsigned kKept = 0, kPassed = 0;
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    T sum = T(0);
    row.in_order(n, [&](int64_t k) {
      const int64_t i = row.args.backwards ? n - 1 - k : k;
      sum += row.in_value(kX, i);
      row.out_at(kY, i, sum);
    });
  }
};

// y = keep ? x / (1 - p) : 0; keep is a function of (key, sample, element), never of the rank or the row's place.
struct Dropout : DropoutRows {
  static constexpr unsigned kKept = 0, kPassed = operand_bit(kX) | operand_bit(kY);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    const int64_t rows_per_sample = row.args.rows_per_sample;
    const uint64_t sample = static_cast<uint64_t>(row.in_integer(kSamples, row.row / rows_per_sample));
    const uint64_t part = static_cast<uint64_t>(row.row % rows_per_sample);
    const uint64_t key = mix(row.args.seed, row.args.step), high = mix(row.args.site, sample);
    const uint64_t groups = static_cast<uint64_t>((n + 3) / 4);
    const float p = static_cast<float>(row.args.drop_probability);
    const T scale = static_cast<T>(1.0 / (1.0 - row.args.drop_probability));
    auto x = row.in(kX);
    auto y = row.out(kY);
    row.each_four(n, [&](int64_t i) {
      Philox4 r = philox(key, part * groups + static_cast<uint64_t>(i) / 4, high);
      for (int64_t j = 0; j < 4; ++j)
        if (i + j < n) y[i + j] = uniform_of(r.v[j]) < p ? T(0) : x[i + j] * scale;
    });
  }
};

// Numbers are a function of (key, sample, element), as in Dropout.
template <bool kNormal>
struct Random : RandomRows {
  static constexpr unsigned kKept = 0, kPassed = operand_bit(kY);
  template <class T, class Row>
  HD static void run(Row& row) {
    const int64_t n = row.args.cols;
    const uint64_t sample = static_cast<uint64_t>(row.in_integer(kSamples, row.row / row.args.rows_per_sample));
    const uint64_t part = static_cast<uint64_t>(row.row % row.args.rows_per_sample);
    const uint64_t key = mix(row.args.seed, row.args.step), high = mix(row.args.site, sample);
    const uint64_t groups = static_cast<uint64_t>((n + 3) / 4);
    auto y = row.out(kY);
    row.each(n, [&](int64_t i) {
      const Philox4 r = philox(key, part * groups + static_cast<uint64_t>(i) / 4, high);
      const float u = symmetric_of(r.v[i % 4]);
      y[i] = static_cast<T>(kNormal ? normal_of(u) : u);
    });
  }
};

struct Sum : ReduceRows {
  static constexpr unsigned kKept = 0, kPassed = operand_bit(kX);
  template <class T, class Row>
  HD static void run(Row& row) {
    auto x = row.in(kX);
    row.out_value(kResult, row.sum(row.args.cols, [&](int64_t i) -> T { return x[i]; }));
  }
};

struct Max : ReduceRows {
  static constexpr unsigned kKept = 0, kPassed = operand_bit(kX);
  template <class T, class Row>
  HD static void run(Row& row) {
    auto x = row.in(kX);
    row.out_value(kResult, row.max(row.args.cols, [&](int64_t i) -> T { return x[i]; }));
  }
};

struct NormSquared : ReduceRows {
  static constexpr unsigned kKept = 0, kPassed = operand_bit(kX);
  template <class T, class Row>
  HD static void run(Row& row) {
    auto x = row.in(kX);
    row.out_wide(kResult, row.sum(row.args.cols, [&](int64_t i) -> double {
      double v = static_cast<double>(T(x[i]));
      return v * v;
    }));
  }
};

}  // namespace

void row(Parallel& where, RowOp op, const RowArgs& a) {
  switch (op) {
    case RowOp::kLayerNorm: return for_each_row<LayerNorm>(where, a);
    case RowOp::kAddLayerNorm: return for_each_row<AddLayerNorm>(where, a);
    case RowOp::kLayerNormBackward: return for_each_row<LayerNormBackward>(where, a);
    case RowOp::kRmsNorm: return for_each_row<RmsNorm>(where, a);
    case RowOp::kRmsNormBackward: return for_each_row<RmsNormBackward>(where, a);
    case RowOp::kSoftmax: return for_each_row<Softmax>(where, a);
    case RowOp::kSoftmaxBackward: return for_each_row<SoftmaxBackward>(where, a);
    case RowOp::kCrossEntropy: return for_each_row<CrossEntropy>(where, a);
    case RowOp::kCrossEntropyBackward: return for_each_row<CrossEntropyBackward>(where, a);
    case RowOp::kCrossEntropyInOnePass: return for_each_row<CrossEntropyInOnePass>(where, a);
    case RowOp::kRescale: return for_each_row<Rescale>(where, a);
    case RowOp::kDropout: return for_each_row<Dropout>(where, a);
    case RowOp::kRandn: return for_each_row<Random<true>>(where, a);
    case RowOp::kUniform: return for_each_row<Random<false>>(where, a);
    case RowOp::kSum: return for_each_row<Sum>(where, a);
    case RowOp::kMax: return for_each_row<Max>(where, a);
    case RowOp::kNormSquared: return for_each_row<NormSquared>(where, a);
    case RowOp::kLogSoftmax: return for_each_row<LogSoftmax>(where, a);
    case RowOp::kLogSoftmaxBackward: return for_each_row<LogSoftmaxBackward>(where, a);
    case RowOp::kTopIndices: return for_each_row<TopIndices>(where, a);
    case RowOp::kPick: return for_each_row<Pick>(where, a);
    case RowOp::kAddAt: return for_each_row<AddAt>(where, a);
    case RowOp::kCumulate: return for_each_row<Cumulate>(where, a);
  }
}

}  // namespace lockstep::inline LOCKSTEP_ISA
