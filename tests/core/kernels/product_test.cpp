// The definition of matrix products, to the bit, at every instruction-set level that this CPU has: of fp32 one chain of
// multiply-adds over k; of bf16 a chain over the even and one over the odd k of each 32.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "core/base/error.h"
#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"
#include "core/kernels/recurrent_steps.h"
#include "core/kernels/stage.h"

namespace lockstep::emulated_amx {
void gemm(Parallel&, const GemmArgs&);
void conv(Parallel&, const ConvArgs&);
void conv_backward_input(Parallel&, const ConvArgs&);
void conv_backward_weight(Parallel&, const ConvArgs&);
void attention(Parallel&, const AttentionArgs&);
void attention_backward(Parallel&, const AttentionArgs&);
void recurrent(Parallel&, const RecurrentArgs&);
}  // namespace lockstep::emulated_amx

namespace lockstep::product_test {
namespace {

// The levels from `least` on that this CPU has, and the one whose tile registers are emulated.
std::vector<KernelTable> tables(IsaLevel least) {
  std::vector<KernelTable> out;
  for (IsaLevel level : kIsaLevels)
    if (level >= least && has_isa_level(level)) out.push_back(kernels(level));
  if (best_isa_level() < IsaLevel::kAvx512) return out;
  KernelTable t = kernels(IsaLevel::kAvx512);
  t.isa = "amx, emulated";
  t.gemm = emulated_amx::gemm;
  t.conv = emulated_amx::conv;
  t.conv_backward_input = emulated_amx::conv_backward_input;
  t.conv_backward_weight = emulated_amx::conv_backward_weight;
  t.attention = emulated_amx::attention;
  t.attention_backward = emulated_amx::attention_backward;
  t.recurrent = emulated_amx::recurrent;
  out.push_back(t);
  return out;
}

struct Operand {
  std::vector<float> values;   // [rows, cols]
  std::vector<uint16_t> bf16;  // as stored; the values are then these
  std::vector<float> fp32;
  bool transposed = false;
  int64_t rows = 0, cols = 0;
  float at(int64_t r, int64_t c) const { return values[static_cast<size_t>(r * cols + c)]; }
  Matrix matrix(DType dtype) {
    void* data = dtype == DType::kFloat32 ? static_cast<void*>(fp32.data()) : bf16.data();
    return {data, dtype, transposed ? 1 : cols, transposed ? rows : 1, 0};
  }
};

class Numbers {
 public:
  explicit Numbers(uint32_t seed) : random_(seed) {}
  int64_t below(int64_t n) { return static_cast<int64_t>(random_() % static_cast<uint32_t>(n)); }
  // Around 1; with `wild` some are so small or so large that products and sums leave the range of fp32, or are NaN.
  float value(bool wild) {
    const float x = static_cast<float>(below(20001) - 10000) / 5000;
    if (!wild) return x;
    const int64_t kind = below(40);
    return kind < 8     ? std::ldexp(x, -static_cast<int>(55 + below(20)))
           : kind < 10  ? std::ldexp(x, static_cast<int>(55 + below(15)))
           : kind == 10 ? INFINITY * x
                        : x;
  }
  Operand operand(int64_t rows, int64_t cols, DType dtype, bool wild, bool transposed) {
    Operand out;
    out.rows = rows, out.cols = cols, out.transposed = transposed;
    const auto n = static_cast<size_t>(rows * cols);
    out.values.resize(n), out.bf16.resize(n + 1), out.fp32.resize(n + 1);
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t c = 0; c < cols; ++c) {
        float v = value(wild);
        const auto place = static_cast<size_t>(out.transposed ? c * rows + r : r * cols + c);
        if (dtype == DType::kBFloat16) v = from_bf16(out.bf16[place] = to_bf16(v));
        out.fp32[place] = out.values[static_cast<size_t>(r * cols + c)] = v;
      }
    return out;
  }

 private:
  std::mt19937 random_;
};

float chain(const Operand& a, const Operand& b, int64_t i, int64_t j, float sum) {
  for (int64_t k = 0; k < a.cols; ++k) sum = std::fma(a.at(i, k), b.at(k, j), sum);
  return sum;
}

float pairs(const Operand& a, const Operand& b, int64_t i, int64_t j, float sum) {
  for (int64_t k0 = 0; k0 < a.cols; k0 += 32) {
    float of[2] = {0, 0};
    for (int64_t k = k0; k < k0 + 32; ++k)
      of[k % 2] = k < a.cols ? std::fma(a.at(i, k), b.at(k, j), of[k % 2]) : std::fma(0.0f, 0.0f, of[k % 2]);
    sum = sum + (of[0] + of[1]);
  }
  return sum;
}

// All NaN are one.
bool same(float a, float b) { return std::memcmp(&a, &b, 4) == 0 || (std::isnan(a) && std::isnan(b)); }

struct Shape {
  int64_t m, n, k;
};
using Defined = float (*)(const Operand&, const Operand&, int64_t, int64_t, float);

void expect_defined(DType dtype, IsaLevel least, Defined defined, Numbers& numbers, const Shape& shape,
                    bool a_transposed, bool wild) {
  const auto [m, n, k] = shape;
  ThreadPool pool(2);
  const bool accumulate = numbers.below(2) == 1;
  Operand a = numbers.operand(m, k, dtype, wild, a_transposed),
          b = numbers.operand(k, n, dtype, wild, numbers.below(2) == 1),
          before = numbers.operand(m, n, DType::kFloat32, false, false),
          bias = numbers.operand(1, n, DType::kFloat32, false, false);
  std::vector<float> expected;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j)
      expected.push_back(defined(a, b, i, j, accumulate ? before.at(i, j) : bias.at(0, j)));
  for (const KernelTable& table : tables(least)) {
    std::vector<float> c = before.values;
    GemmArgs g;
    g.m = m, g.n = n, g.k = k, g.accumulate = accumulate;
    g.a = a.matrix(dtype), g.b = b.matrix(dtype), g.c = {c.data(), DType::kFloat32, n, 1, 0};
    if (!accumulate) g.bias = bias.values.data();
    table.gemm(pool, g);
    int64_t wrong = 0;
    for (size_t x = 0; x < c.size(); ++x) wrong += !same(c[x], expected[x]);
    EXPECT_EQ(wrong, 0) << table.isa << ", " << m << " x " << n << " x " << k;
    std::vector<uint16_t> low(c.size());
    for (size_t x = 0; x < c.size(); ++x) low[x] = to_bf16(before.values[x]);
    g.c = {low.data(), DType::kBFloat16, n, 1, 0};
    table.gemm(pool, g);
    for (int64_t x = 0; x < m * n; ++x) {
      const float sum = accumulate ? from_bf16(to_bf16(before.at(x / n, x % n))) : bias.at(0, x % n);
      wrong += !same(from_bf16(low[static_cast<size_t>(x)]), from_bf16(to_bf16(defined(a, b, x / n, x % n, sum))));
    }
    EXPECT_EQ(wrong, 0) << table.isa << ", rounded to bf16, " << m << " x " << n << " x " << k;
  }
}

void expect_defined(DType dtype, IsaLevel least, Defined defined) {
  flush_denormals();
  Numbers numbers(5);
  for (int round = 0; round < 120; ++round) {
    // Every seventh B is as narrow as one panel, where it may be read in place.
    const int64_t m = 1 + numbers.below(round % 5 == 0 ? 150
                                        : round % 2    ? 40
                                                       : 9),
                  n = round % 7 == 0 ? 8 << numbers.below(3) : 1 + numbers.below(round % 8 ? 130 : 1200),
                  k = numbers.below(round % 4 ? 100 : 1000);
    expect_defined(dtype, least, defined, numbers, {m, n, k}, numbers.below(2) == 1, round % 3 == 0);
  }
  // Tiles, strips and blocks of each level, whole ones and their rests, with A by columns.
  for (const Shape& shape : {Shape{14, 64, 65}, Shape{15, 65, 801}, Shape{23, 128, 63}, Shape{56, 96, 64},
                             Shape{57, 129, 801}, Shape{113, 1056, 65}, Shape{29, 1056, 385}})
    expect_defined(dtype, least, defined, numbers, shape, true, false);
}

TEST(Product, OfFp32IsOneChainOverK) { expect_defined(DType::kFloat32, IsaLevel::kAvx2, chain); }

TEST(Product, OfBf16IsPairsOfChains) { expect_defined(DType::kBFloat16, IsaLevel::kGeneric, pairs); }

// bf16 numbers around 1.
std::vector<uint16_t> bf16_numbers(Numbers& numbers, int64_t n) {
  std::vector<uint16_t> out(static_cast<size_t>(n));
  for (uint16_t& x : out) x = to_bf16(numbers.value(false));
  return out;
}

TEST(Product, OfConvolutionsInBf16HasTheSameBitsAtEachLevel) {
  flush_denormals();
  for (const auto& [images, extent, in, out, stride, padding] :
       {std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t>{3, 9, 5, 20, 1, 1},
        {40, 12, 16, 33, 2, 0},
        {70, 14, 1, 8, 1, 2}}) {
    Numbers numbers(9);
    ConvArgs a;
    a.images = images, a.height = a.width = extent, a.in_channels = in, a.out_channels = out;
    a.kernel_h = a.kernel_w = 3, a.stride = stride, a.padding = padding;
    a.out_height = a.out_width = (extent + 2 * padding - 3) / stride + 1;
    auto x = bf16_numbers(numbers, images * extent * extent * in), w = bf16_numbers(numbers, out * 9 * in),
         y = bf16_numbers(numbers, images * a.out_height * a.out_width * out);
    a.x_dtype = a.weight_dtype = a.y_dtype = DType::kBFloat16;
    std::vector<uint16_t> first_y, first_dx;
    std::vector<float> first_dw;
    for (const KernelTable& table : tables(IsaLevel::kGeneric))
      for (int threads : {1, 3}) {
        SCOPED_TRACE(str(table.isa, ", ", threads, " threads"));
        ThreadPool pool(threads);
        std::vector<uint16_t> out_y(y.size()), out_dx(x.size());
        std::vector<float> out_dw(w.size());
        ConvArgs forward = a, input = a, weight = a;
        forward.x = x.data(), forward.weight = w.data(), forward.y = out_y.data();
        input.x = out_dx.data(), input.weight = w.data(), input.y = y.data();
        weight.x = x.data(), weight.weight = out_dw.data(), weight.y = y.data(), weight.weight_dtype = DType::kFloat32;
        table.conv(pool, forward);
        table.conv_backward_input(pool, input);
        table.conv_backward_weight(pool, weight);
        if (first_y.empty()) first_y = out_y, first_dx = out_dx, first_dw = out_dw;
        EXPECT_EQ(out_y, first_y);
        EXPECT_EQ(out_dx, first_dx);
        EXPECT_EQ(out_dw, first_dw);
      }
  }
}

TEST(Product, OfAttentionInBf16HasTheSameBitsAtEachLevelWithFusedMultiplyAdd) {
  flush_denormals();
  struct Case {
    int64_t batch, time, heads, dim, kv_heads, window;
  };
  for (const auto& [batch, time, heads, dim, kv_heads, window] :
       {Case{2, 150, 2, 24, 2, 0}, Case{1, 64, 3, 64, 3, 0}, Case{3, 7, 1, 40, 1, 0}, Case{2, 150, 4, 24, 2, 0},
        Case{1, 200, 2, 64, 1, 37}, Case{1, 130, 2, 40, 2, 64}}) {
    Numbers numbers(11);
    AttentionArgs a;
    a.batch = batch, a.time = time, a.heads = heads, a.kv_heads = kv_heads, a.dim = dim, a.dtype = DType::kBFloat16,
    a.scale = 0.125;
    a.window = window;
    auto qkv = bf16_numbers(numbers, batch * time * (heads + 2 * kv_heads) * dim),
         dy = bf16_numbers(numbers, batch * time * heads * dim);
    std::vector<uint16_t> first_y, first_dqkv;
    for (const KernelTable& table : tables(IsaLevel::kAvx2)) {
      ThreadPool pool(2);
      std::vector<uint16_t> y(dy.size()), dqkv(qkv.size());
      std::vector<float> lse(static_cast<size_t>(batch * heads * time));
      a.unpack(qkv.data(), dqkv.data());
      a.y = y.data(), a.dy = dy.data(), a.lse = lse.data();
      table.attention(pool, a);
      table.attention_backward(pool, a);
      if (first_y.empty()) first_y = y, first_dqkv = dqkv;
      EXPECT_EQ(y, first_y) << table.isa;
      EXPECT_EQ(dqkv, first_dqkv) << table.isa;
    }
  }
}

// Runs the parts of a step as kernels of a level over the whole batch, which pack nothing in advance.
struct Unpacked {
  const KernelTable& table;
  Parallel& where;
  void multiply(StepWeight, const GemmArgs& g) { table.gemm(where, g); }
  void pointwise(PointwiseOp op, const PointwiseArgs& p) { table.pointwise(where, op, p); }
  void cell(CellPass pass, const PointwiseArgs& p) { table.cell(where, pass, p); }
};

// All tensors of a recurrent layer and its gradient; `low` are those in the type of products.
template <class Low>
struct RecurrentLayer {
  RecurrentLayer(bool lstm, bool reverse, int64_t hidden, int64_t batch, int64_t time, DType dtype) {
    Numbers numbers(7);
    a.pass = lstm ? CellPass::kLstm : CellPass::kGru, a.reverse = reverse;
    a.time = time, a.batch = batch, a.hidden = hidden, a.low = dtype;
    const int64_t rows = time * batch;
    const auto wide = [&](int64_t n, std::vector<float>& v) {
      v.resize(static_cast<size_t>(n));
      for (float& x : v) x = numbers.value(false);
      return v.data();
    };
    const auto low = [&](int64_t n, std::vector<Low>& v) {
      v.resize(static_cast<size_t>(n));
      for (Low& x : v)
        if constexpr (sizeof(Low) == 2) x = to_bf16(numbers.value(false) / 8);
        else x = numbers.value(false) / 8;
      return v.data();
    };
    a.weight = low(a.all_gates() * hidden, weight), a.zero = wide(1, zero);
    zero[0] = 0;
    a.gates = wide(rows * a.all_gates(), gates), a.c = wide(rows * hidden, c), a.of_h = wide(rows * hidden, of_h);
    a.h = low(rows * hidden, h), a.dh = wide(rows * hidden, dh), a.dstate = wide(batch * hidden, dstate);
    std::fill(dstate.begin(), dstate.end(), 0.0f);
    a.dgates = wide(rows * a.all_gates(), dgates), a.dof_h = wide(rows * hidden, dof_h);
    a.dgates_low = a.dgates, a.dof_h_low = a.dof_h;
    if (sizeof(Low) == 2)
      a.dgates_low = low(rows * a.all_gates(), dgates_low), a.dof_h_low = low(rows * hidden, dof_h_low);
  }
  template <class Run>
  void run(const Run& steps) {
    steps(a);
    a.pass = a.lstm() ? CellPass::kLstmBackward : CellPass::kGruBackward;
    steps(a);
  }
  bool operator==(const RecurrentLayer& o) const {
    const auto same = [](const auto& x, const auto& y) {
      return x.size() == y.size() && (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
    };
    return same(gates, o.gates) && same(c, o.c) && same(of_h, o.of_h) && same(h, o.h) && same(dh, o.dh) &&
           same(dgates, o.dgates) && same(dof_h, o.dof_h) && same(dgates_low, o.dgates_low) &&
           same(dof_h_low, o.dof_h_low) && same(dstate, o.dstate);
  }

  RecurrentArgs a;
  std::vector<float> zero, gates, of_h, c, dh, dgates, dof_h, dstate;
  std::vector<Low> weight, h, dgates_low, dof_h_low;
};

template <class Low>
void expect_recurrent_bits(DType dtype) {
  struct Case {
    int64_t hidden, batch, time;
  };
  for (const KernelTable& table : tables(IsaLevel::kGeneric))
    for (const auto& [hidden, batch, time] :
         {Case{300, 20, 3}, Case{128, 33, 2}, Case{37, 9, 4}, Case{8, 3, 3}, Case{16, 5, 1}, Case{1040, 9, 2}})
      for (bool lstm : {true, false})
        for (bool reverse : {false, true}) {
          if (reverse && hidden > 40) continue;
          // Several blocks of rows and of columns in what is packed for tiles.
          if (hidden > 1000 && (!lstm || std::string_view(table.isa).find("amx") == std::string_view::npos)) continue;
          SCOPED_TRACE(std::string(table.isa) + (lstm ? ": LSTM of " : ": GRU of ") + std::to_string(hidden));
          ThreadPool alone(1);
          RecurrentLayer<Low> expected(lstm, reverse, hidden, batch, time, dtype);
          expected.run([&](const RecurrentArgs& a) {
            Unpacked parts{table, alone};
            RecurrentSteps(a, 0, a.batch, parts).all();
          });
          for (int threads : {1, 2, 5}) {
            ThreadPool pool(threads);
            RecurrentLayer<Low> got(lstm, reverse, hidden, batch, time, dtype);
            got.run([&](const RecurrentArgs& a) { table.recurrent(pool, a); });
            EXPECT_TRUE(got == expected) << threads << " threads";
          }
        }
}

TEST(Product, OfRecurrentLayersHasTheBitsOfItsPartsAtEachLevel) {
  flush_denormals();
  expect_recurrent_bits<float>(DType::kFloat32);
  expect_recurrent_bits<uint16_t>(DType::kBFloat16);
}

}  // namespace
}  // namespace lockstep::product_test
