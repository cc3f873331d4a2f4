// Matrix products as a column-major library is asked for them: driven through a plain column-major product, they give
// what the CPU's kernel gives, whatever the strides, types and addresses. Values are small integers, so that no order
// of a sum rounds and results are equal to the bit.
#include "core/device/cuda/libraries/gemm_layout.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <vector>

#include "core/base/error.h"
#include "core/device/thread_pool.h"
#include "core/kernels/stage.h"

namespace lockstep::cuda::gemm_layout_test {
namespace {

// A device's queue whose kernels are the CPU's.
class HostQueue : public Parallel {
 public:
  void run(int64_t n, int64_t grain, Body body) override { pool_.run(n, grain, body); }
  int threads() const override { return 1; }
  void* scratch(int slot, int64_t bytes) override { return pool_.scratch(slot, bytes); }
  const KernelTable* device_kernels() const override { return &kernels(); }

 private:
  ThreadPool pool_{1};
};

bool is_narrow(DType t) { return t == DType::kBFloat16 || t == DType::kFloat16; }

// As one pass over C and what lies like it.
void pass(PointwiseOp op, const GemmCall& call, void* out, std::initializer_list<void*> ins) {
  auto view = [&](void* data) { return Operand{data, call.c.dtype, {call.c.ld, 1}}; };
  PointwiseArgs a;
  a.numel = call.m * call.n, a.dims = 2;
  a.sizes[0] = call.n, a.sizes[1] = call.m;
  a.outs = 1;
  a.out[0] = view(out);
  for (void* in : ins) a.in[a.ins++] = view(in);
  HostQueue queue;
  kernels().pointwise(queue, op, a);
}

// What cuBLASLt's documentation says that it takes, and then the product itself.
void column_major_product(const GemmCall& call) {
  const DType type = call.a.dtype;
  ASSERT_EQ(type, call.b.dtype);
  ASSERT_TRUE(call.c.dtype == type || (is_narrow(type) && call.c.dtype == DType::kFloat32)) << to_text(call);
  ASSERT_TRUE(call.m > 0 && call.n > 0 && call.k > 0 && call.batch > 0);
  ASSERT_TRUE(!call.bias || (call.c.dtype == type && type != DType::kFloat64)) << to_text(call);
  ASSERT_FALSE(call.c.transposed);
  auto rows = [](const ColumnMajor& m) { return m.transposed ? m.cols : m.rows; };
  auto cols = [](const ColumnMajor& m) { return m.transposed ? m.rows : m.cols; };
  ASSERT_EQ(rows(call.a), call.m);
  ASSERT_EQ(cols(call.a), call.k);
  ASSERT_EQ(rows(call.b), call.k);
  ASSERT_EQ(cols(call.b), call.n);
  ASSERT_EQ(rows(call.c), call.m);
  ASSERT_EQ(cols(call.c), call.n);
  for (const ColumnMajor& m : {call.a, call.b, call.c}) {
    ASSERT_GE(m.ld, m.rows) << to_text(call);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(m.data) % 16, 0u) << to_text(call);
    ASSERT_EQ(m.batch_stride * size_of(m.dtype) % m.alignment, 0);
  }
  ASSERT_EQ(reinterpret_cast<uintptr_t>(call.bias) % 16, 0u);
  if (call.beyond_product()) {
    ASSERT_TRUE(is_narrow(type) && call.batch == 1) << to_text(call);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(call.bias_gradient) % 16, 0u);
    ASSERT_EQ(reinterpret_cast<uintptr_t>(call.aux) % 16, 0u);
    ASSERT_EQ(call.epilogue != Epilogue::kNone, call.bias_gradient == nullptr) << "one at a time";
    ASSERT_TRUE(!call.aux || (call.c.dtype == type && call.c.ld % 8 == 0 && !call.accumulate)) << to_text(call);
    ASSERT_FALSE(call.bias && (call.bias_gradient || call.epilogue == Epilogue::kGeluBackward)) << to_text(call);
  }
  auto at = [](const ColumnMajor& m, int64_t batch, int64_t i, int64_t j) {
    if (m.transposed) std::swap(i, j);
    return batch * m.batch_stride + i + j * m.ld;
  };
  for (int64_t b = 0; b < call.batch; ++b)
    for (int64_t j = 0; j < call.n; ++j)
      for (int64_t i = 0; i < call.m; ++i) {
        double sum = 0;
        for (int64_t k = 0; k < call.k; ++k)
          sum += load_element<double>(call.a.data, call.a.dtype, at(call.a, b, i, k)) *
                 load_element<double>(call.b.data, call.b.dtype, at(call.b, b, k, j));
        if (call.accumulate) sum += load_element<double>(call.c.data, call.c.dtype, at(call.c, b, i, j));
        if (call.bias) sum += load_element<double>(call.bias, call.c.dtype, i);
        store_element<double>(call.c.data, call.c.dtype, at(call.c, b, i, j), sum);
      }
  if (call.epilogue == Epilogue::kGelu) {
    pass(PointwiseOp::kCopy, call, call.aux, {call.c.data});
    pass(PointwiseOp::kGelu, call, call.c.data, {call.aux});
  }
  if (call.epilogue == Epilogue::kGeluBackward)
    pass(PointwiseOp::kGeluBackward, call, call.c.data, {call.c.data, call.aux});
  for (int64_t j = 0; j < call.n && call.bias_gradient; ++j) {
    double sum = 0;
    for (int64_t k = 0; k < call.k; ++k) sum += load_element<double>(call.b.data, call.b.dtype, at(call.b, 0, k, j));
    store_element<double>(call.bias_gradient, call.c.dtype, j, sum);
  }
}

// Bytes that start `shift` bytes past an address of 64-byte alignment.
class Memory {
 public:
  Memory(int64_t bytes, int64_t shift) : bytes_(static_cast<size_t>(bytes + shift + 64)) {
    const auto address = reinterpret_cast<uintptr_t>(bytes_.data());
    data_ = bytes_.data() + (64 - address % 64) % 64 + static_cast<size_t>(shift);
  }
  void* data() { return data_; }

 private:
  std::vector<char> bytes_;
  char* data_;
};

std::vector<double> values_of(const void* data, DType dtype, int64_t n) {
  std::vector<double> out;
  for (int64_t i = 0; i < n; ++i) out.push_back(load_element<double>(data, dtype, i));
  return out;
}

struct Filled {
  Memory memory;
  Matrix matrix;
  int64_t elements;

  Filled(std::mt19937& random, int64_t elements_in, Matrix layout, int64_t shift)
      : memory(elements_in * size_of(layout.dtype), shift * size_of(layout.dtype)),
        matrix(layout),
        elements(elements_in) {
    matrix.data = memory.data();
    for (int64_t i = 0; i < elements; ++i)
      store_element<double>(matrix.data, matrix.dtype, i, static_cast<double>(random() % 5) - 2);
  }
  std::vector<double> values() const { return values_of(matrix.data, matrix.dtype, elements); }
};

enum class Pattern { kRows, kColumns, kPaddedRows, kPaddedColumns, kScattered, kRepeatedRow, kCount };

// [batch, rows, cols] in the pattern; `elements` is how many it spans.
Matrix layout_of(Pattern pattern, DType dtype, int64_t batch, int64_t rows, int64_t cols, int64_t gap,
                 int64_t& elements) {
  Matrix m{nullptr, dtype, cols, 1, 0};
  if (pattern == Pattern::kColumns) m.row_stride = 1, m.col_stride = rows;
  if (pattern == Pattern::kPaddedRows) m.row_stride = cols + 3;
  if (pattern == Pattern::kPaddedColumns) m.row_stride = 1, m.col_stride = rows + 8;
  if (pattern == Pattern::kScattered) m.row_stride = 2 * cols + 1, m.col_stride = 2;
  if (pattern == Pattern::kRepeatedRow) m.row_stride = 0;
  const int64_t one = rows * cols == 0 ? 0 : (rows - 1) * m.row_stride + (cols - 1) * m.col_stride + 1;
  m.batch_stride = gap < 0 ? 0 : one + gap;  // below 0: every product of the batch uses the same matrix
  elements = one + (batch > 0 ? batch - 1 : 0) * m.batch_stride;
  return m;
}

GemmKey expect_same(const GemmArgs& g, const Filled& c) {
  HostQueue queue;
  const int64_t bytes_of_c = c.elements * size_of(c.matrix.dtype);
  Memory expected(bytes_of_c, 0);
  memcpy(expected.data(), c.matrix.data, static_cast<size_t>(bytes_of_c));
  GemmArgs on_cpu = g;
  on_cpu.c.data = expected.data();
  kernels().gemm(queue, on_cpu);

  std::vector<Memory> slots;
  std::set<int> taken;
  auto scratch = [&](int slot, int64_t bytes) -> void* {
    EXPECT_TRUE(slot >= 0 && slot < 4 && taken.insert(slot).second) << "slot " << slot << " taken twice";
    return slots.emplace_back(bytes, 0).data();
  };
  GemmKey key{};
  std::string text;
  auto product = [&](const GemmCall& call) {
    key = key_of(call);
    text = to_text(call);
    column_major_product(call);
    return true;
  };
  gemm_in_steps(queue, g, scratch, product);
  EXPECT_EQ(c.values(), values_of(expected.data(), c.matrix.dtype, c.elements)) << text;
  return key;
}

TEST(GemmLayout, EveryPatternTypeAndAddress) {
  std::mt19937 random(7);
  const DType kTypes[] = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64};
  auto any = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  auto pattern = [&] { return static_cast<Pattern>(any(static_cast<int64_t>(Pattern::kCount))); };
  for (int run = 0; run < 4000 && !::testing::Test::HasFailure(); ++run) {
    GemmArgs g;
    g.m = any(12), g.n = any(12), g.k = any(12), g.batch = 1 + any(3);
    if (run % 50 == 0) g.batch = 0;
    const DType type = kTypes[any(4)];
    const bool mixed = any(3) == 0;
    auto dtype = [&] { return mixed ? kTypes[any(4)] : type; };
    auto gap = [&](int64_t all) { return g.batch > 1 && all == 0 ? -1 : any(3); };
    int64_t elements = 0;
    g.a = layout_of(pattern(), dtype(), g.batch, g.m, g.k, gap(any(3)), elements);
    const Filled a(random, elements, g.a, any(4));
    g.b = layout_of(pattern(), dtype(), g.batch, g.k, g.n, gap(any(3)), elements);
    const Filled b(random, elements, g.b, any(4));
    g.c = layout_of(any(2) ? Pattern::kRows : Pattern::kPaddedRows, dtype(), g.batch, g.m, g.n, any(3), elements);
    const Filled c(random, elements, g.c, any(4));
    g.a.data = a.matrix.data, g.b.data = b.matrix.data, g.c.data = c.matrix.data;
    const Filled bias(random, g.n, {nullptr, any(2) ? g.c.dtype : dtype(), 0, 1, 0}, any(4));
    // The CPU's kernel takes one or the other: no operation wants both.
    if (const int64_t extra = any(3); extra == 0) g.bias = bias.matrix.data, g.bias_dtype = bias.matrix.dtype;
    else g.accumulate = extra == 1;
    expect_same(g, c);
  }
}

TEST(GemmLayout, BiasOnTopOfAccumulation) {
  std::mt19937 random(8);
  for (DType type : {DType::kFloat32, DType::kBFloat16, DType::kFloat64})
    for (DType bias_type : {DType::kFloat32, DType::kBFloat16})
      for (int64_t k : {0, 5}) {
        GemmArgs g;
        g.m = 3, g.n = 4, g.k = k;
        Filled a(random, 15, {nullptr, type, 5, 1, 0}, 0), b(random, 20, {nullptr, type, 4, 1, 0}, 0),
            c(random, 12, {nullptr, type, 4, 1, 0}, 0), bias(random, 4, {nullptr, bias_type, 0, 1, 0}, 0);
        g.a = a.matrix, g.b = b.matrix, g.c = c.matrix;
        g.bias = bias.matrix.data, g.bias_dtype = bias_type, g.accumulate = true;
        std::vector<double> expected = c.values();
        for (size_t i = 0; i < 3; ++i)
          for (size_t j = 0; j < 4; ++j) {
            double& sum = expected[i * 4 + j];
            for (size_t x = 0; x < static_cast<size_t>(k); ++x) sum += a.values()[i * 5 + x] * b.values()[x * 4 + j];
            sum += bias.values()[j];
          }
        HostQueue queue;
        std::vector<Memory> slots;
        auto scratch = [&](int, int64_t bytes) { return slots.emplace_back(bytes, 0).data(); };
        auto product = [](const GemmCall& call) {
          column_major_product(call);
          return true;
        };
        gemm_in_steps(queue, g, scratch, product);
        EXPECT_EQ(c.values(), expected) << str(type, " with bias ", bias_type, ", k = ", k);
      }
}

// A parameter lies elsewhere at every shard level: that must not choose another algorithm.
TEST(GemmLayout, PlansDoNotDependOnAddresses) {
  std::mt19937 random(9);
  std::set<GemmKey> keys;
  for (int64_t shift = 0; shift < 8; ++shift) {
    GemmArgs g;
    g.m = 8, g.n = 16, g.k = 24;
    Filled a(random, 8 * 24, {nullptr, DType::kBFloat16, 24, 1, 0}, 0);
    Filled weight(random, 16 * 24, {nullptr, DType::kBFloat16, 1, 24, 0}, shift);
    Filled c(random, 8 * 16, {nullptr, DType::kBFloat16, 16, 1, 0}, shift);
    Filled bias(random, 16, {nullptr, DType::kBFloat16, 0, 1, 0}, shift);
    g.a = a.matrix, g.b = weight.matrix, g.c = c.matrix;
    g.bias = bias.matrix.data, g.bias_dtype = DType::kBFloat16;
    keys.insert(expect_same(g, c));
    g.bias = nullptr, g.accumulate = true;
    keys.insert(expect_same(g, c));
  }
  EXPECT_EQ(keys.size(), 2u);  // with a bias, and added to what is there
}

// What a library was asked that has no epilogue, or has them all.
struct Asked {
  std::vector<GemmCall> calls;
  bool fused() const { return calls.size() == 1 && calls[0].beyond_product(); }
  bool plain() const { return calls.size() == 1 && !calls[0].beyond_product(); }
  bool refused() const { return calls.size() == 2 && calls[0].beyond_product() && !calls[1].beyond_product(); }
};

Asked run_on(bool refuses, const GemmArgs& g) {
  HostQueue queue;
  Asked asked;
  std::vector<Memory> slots;
  slots.reserve(8);
  std::set<int> taken;
  auto scratch = [&](int slot, int64_t bytes) -> void* {
    EXPECT_TRUE(slot >= 0 && slot < 4 && taken.insert(slot).second) << "slot " << slot << " taken twice";
    return slots.emplace_back(bytes, 0).data();
  };
  auto product = [&](const GemmCall& call) {
    asked.calls.push_back(call);
    if (refuses && call.beyond_product()) return false;
    column_major_product(call);
    return true;
  };
  gemm_in_steps(queue, g, scratch, product);
  return asked;
}

// gelu(A B (+ bias)) and A B gelu'(aux): fused for 16 bits where rows are multiples of 8 elements, else, and where the
// library refuses, by passes after the product; to the CPU's bits.
TEST(GemmLayout, Gelu) {
  std::mt19937 random(10);
  for (DType type : {DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64})
    for (const auto& [m, n, k, row] : {std::tuple{5, 16, 7, 16}, std::tuple{8, 24, 3, 32}, std::tuple{1, 8, 1, 8},
                                       std::tuple{6, 15, 4, 15}, std::tuple{3, 16, 5, 17}, std::tuple{4, 8, 0, 8}})
      for (Epilogue epilogue : {Epilogue::kGelu, Epilogue::kGeluBackward})
        for (bool refuses : {false, true})
          for (DType bias_type : {DType::kInt32, type, DType::kFloat32}) {  // kInt32: none
            GemmArgs g;
            g.m = m, g.n = n, g.k = k;
            g.epilogue = epilogue;
            const Filled a(random, m * k + 1, {nullptr, type, k, 1, 0}, 0),
                b(random, n * k + 1, {nullptr, type, 1, k, 0}, 0), bias(random, n, {nullptr, bias_type, 0, 1, 0}, 1);
            const Matrix layout{nullptr, type, row, 1, 0};
            const Filled c(random, m * row, layout, 0), aux(random, m * row, layout, 0);
            Filled expected_c(random, m * row, layout, 0), expected_aux(random, m * row, layout, 0);
            const auto bytes = static_cast<size_t>(m * row * size_of(type));
            memcpy(expected_c.matrix.data, c.matrix.data, bytes);
            memcpy(expected_aux.matrix.data, aux.matrix.data, bytes);
            g.a = a.matrix, g.b = b.matrix, g.c = expected_c.matrix, g.aux = expected_aux.matrix.data;
            const bool with_bias = epilogue == Epilogue::kGelu && is_floating(bias_type);
            if (with_bias) g.bias = bias.matrix.data, g.bias_dtype = bias_type;
            HostQueue queue;
            kernels().gemm(queue, g);
            g.c = c.matrix, g.aux = aux.matrix.data;
            const Asked asked = run_on(refuses, g);
            const std::string what = str(type, ", ", m, " x ", n, " x ", k, ", row ", row, ", bias ", bias_type,
                                         epilogue == Epilogue::kGelu ? "" : ", backward", refuses ? ", refused" : "");
            EXPECT_EQ(c.values(), expected_c.values()) << what;
            EXPECT_EQ(aux.values(), expected_aux.values()) << what;
            const bool fusable = is_narrow(type) && row % 8 == 0 && !(with_bias && bias_type != type);
            if (k == 0) EXPECT_TRUE(asked.calls.empty()) << what;
            else if (!fusable) EXPECT_TRUE(asked.plain()) << what;
            else if (refuses) EXPECT_TRUE(asked.refused()) << what;
            else EXPECT_TRUE(asked.fused()) << what;
            if (asked.fused()) {
              const GemmCall& call = asked.calls[0];
              EXPECT_EQ(call.epilogue, epilogue);
              EXPECT_EQ(call.aux, aux.matrix.data);
              EXPECT_EQ(call.c.data, c.matrix.data);
              EXPECT_EQ(call.bias != nullptr, with_bias);
              EXPECT_NE(key_of(call), key_of(run_on(true, g).calls[1])) << "another plan";
            }
          }
}

// dW = g^T x with the sums of g's rows, in every combination of types and of adding to what is there. A gradient lies
// anywhere in its buffer, which must not change what is asked.
TEST(GemmLayout, BiasGradients) {
  std::mt19937 random(11);
  std::set<GemmKey> keys;
  const int64_t out = 9, in = 5, rows = 11;
  for (DType type : {DType::kBFloat16, DType::kFloat16, DType::kFloat32, DType::kFloat64})
    for (DType weight_type : {type, DType::kFloat32})
      for (DType bias_type : {type, DType::kFloat32})
        for (bool add : {false, true})
          for (bool refuses : {false, true})
            for (int64_t shift : {0, 1}) {
              GemmArgs g;
              g.m = out, g.n = in, g.k = rows;
              g.accumulate = add, g.accumulate_bias_gradient = !add || shift == 0;
              const Filled gradient(random, rows * out, {nullptr, type, 1, out, 0}, 0),
                  x(random, rows * in, {nullptr, type, in, 1, 0}, 0),
                  weight(random, out * in, {nullptr, weight_type, in, 1, 0}, shift),
                  bias(random, out, {nullptr, bias_type, 0, 1, 0}, shift);
              Filled expected_weight(random, out * in, weight.matrix, 0), expected_bias(random, out, bias.matrix, 0);
              memcpy(expected_weight.matrix.data, weight.matrix.data,
                     static_cast<size_t>(out * in * size_of(weight_type)));
              memcpy(expected_bias.matrix.data, bias.matrix.data, static_cast<size_t>(out * size_of(bias_type)));
              g.a = gradient.matrix, g.b = x.matrix, g.c = expected_weight.matrix;
              g.bias_gradient = expected_bias.matrix.data, g.bias_gradient_dtype = bias_type;
              HostQueue queue;
              kernels().gemm(queue, g);
              g.c = weight.matrix, g.bias_gradient = bias.matrix.data;
              const Asked asked = run_on(refuses, g);
              const std::string what = str(type, " into ", weight_type, " and ", bias_type, add ? ", added" : "",
                                           refuses ? ", refused" : "", ", shift ", shift);
              EXPECT_EQ(weight.values(), expected_weight.values()) << what;
              EXPECT_EQ(bias.values(), expected_bias.values()) << what;
              if (!is_narrow(type) || weight_type != bias_type) EXPECT_TRUE(asked.plain()) << what;
              else if (refuses) EXPECT_TRUE(asked.refused()) << what;
              else EXPECT_TRUE(asked.fused()) << what;
              if (asked.fused()) {
                const GemmCall& call = asked.calls[0];
                EXPECT_EQ(call.m, in);
                EXPECT_EQ(call.n, out);
                EXPECT_TRUE(!call.a.transposed && call.b.transposed) << "g is the second operand, of n columns";
                if (type == DType::kBFloat16 && weight_type == DType::kFloat32) keys.insert(key_of(call));
              }
            }
  EXPECT_EQ(keys.size(), 2u);  // added to what is there, and not
}

}  // namespace
}  // namespace lockstep::cuda::gemm_layout_test
