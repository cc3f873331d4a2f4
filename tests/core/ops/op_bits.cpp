// Prints a hash of the results and gradients of every operation's test case in every type, a line each, computed at the
// instruction-set level that LOCKSTEP_ISA names: op_bits_test.sh compares the lines of two levels.
#include <cstdio>

#include "core/base/hash.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/core/ops/op_cases.h"
#include "tests/support/gradcheck.h"

namespace lockstep {
namespace {

Hash128 hash_of(const Tensor& t) {
  const std::vector<double> values = t.to_vector();
  return hash128(values.data(), values.size() * sizeof(double));
}

void print_bits(const testing::OpCase& c, DType dtype) {
  std::vector<Tensor> inputs;
  for (const Tensor& t : c.inputs) {
    inputs.push_back(Tensor::empty(t.shape(), is_floating(t.dtype()) ? dtype : t.dtype()));
    raw::copy(inputs.back(), t);
    if (is_floating(t.dtype())) require_grad(inputs.back());
  }
  const Tensor y = c.f(inputs);
  backward(sum(mul(y, testing::random_tensor(y.shape(), 5, -1, 1, y.dtype()))));
  Hash128 hash = hash_of(y);
  for (const Tensor& t : inputs)
    if (const Tensor g = grad_of(t)) hash += hash_of(g);
  std::printf("%s %s %s\n", c.name, str(dtype).c_str(), to_hex(hash).c_str());
}

// Extents that fill the widest vectors and leave a rest, in the operations that have kernels of their own.
std::vector<testing::OpCase> large_cases() {
  using Inputs = std::vector<Tensor>;
  uint64_t seed = 0;
  auto r = [&](const Shape& shape) { return testing::random_tensor(shape, ++seed, -1, 1); };
  std::vector<testing::OpCase> c;
  // Of causal attention, where products underflow: whether a sum is -0 or 0 must not depend on how many a level leaves
  // out. Two blocks of queries and a rest, one head of keys for two.
  const auto wide = [](const Shape& shape, double most) { return testing::random_tensor(shape, 1, -most, most); };
  c.push_back({"large_attention_that_underflows",
               [](const Inputs& x) { return causal_attention(x[0], x[1], x[2]); },
               {wide({2, 150, 2, 6}, 12), wide({2, 150, 1, 6}, 12), wide({2, 150, 1, 6}, 1e-37)}});
  c.push_back({"large_matmul", [](const Inputs& x) { return matmul(x[0], x[1]); }, {r({71, 531}), r({531, 83})}});
  c.push_back({"large_linear",
               [](const Inputs& x) { return linear(x[0], x[1], x[2]); },
               {r({67, 300}), r({129, 300}), r({129})}});
  c.push_back({"large_conv2d",
               [](const Inputs& x) { return conv2d(x[0], x[1], x[2], {.padding = 1}); },
               {r({3, 17, 19, 21}), r({37, 3, 3, 21}), r({37})}});
  c.push_back({"large_batch_norm",
               [](const Inputs& x) {
                 BatchNormOptions o;
                 o.relu = true, o.addend = x[3];
                 return batch_norm(batch_norm(x[0], x[1], x[2]).y, x[1], x[2], o).y;
               },
               {r({2000, 67}), r({67}), r({67}), r({2000, 67})}});
  for (Cell cell : {Cell::kLstm, Cell::kGru}) {
    const int64_t gates = cell == Cell::kLstm ? 4 * 70 : 3 * 70;
    c.push_back({cell == Cell::kLstm ? "large_lstm" : "large_gru",
                 [cell](const Inputs& x) { return recurrent(cell, x[0], x[1], x[2], x[3], x[4]); },
                 {r({37, 9, 50}), r({gates, 50}), r({gates, 70}), r({gates}), r({gates})}});
  }
  c.push_back({"large_max_pool", [](const Inputs& x) { return max_pool2d(x[0], 2, 2); }, {r({3, 18, 22, 37})}});
  c.push_back(
      {"large_attention", [](const Inputs& x) { return causal_attention(x[0], 3); }, {r({2, 150, 3 * 3 * 40})}});
  for (const auto& [name, window] : {std::pair{"large_attention_grouped", 0}, std::pair{"large_attention_window", 70}})
    c.push_back({name,
                 [window = window](const Inputs& x) { return causal_attention(x[0], x[1], x[2], window); },
                 {r({2, 150, 4, 40}), r({2, 150, 2, 40}), r({2, 150, 2, 40})}});
  c.push_back({"large_softmax", [](const Inputs& x) { return softmax(x[0]); }, {r({5, 1003})}});
  c.push_back({"large_layer_norm",
               [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); },
               {r({41, 771}), r({771}), r({771})}});
  c.push_back({"large_rms_norm", [](const Inputs& x) { return rms_norm(x[0], x[1]); }, {r({41, 771}), r({771})}});
  c.push_back({"large_rotary",
               [](const Inputs& x) { return rotary(x[0], std::vector<double>(37, 0.7)); },
               {r({2, 150, 3, 74})}});
  c.push_back({"large_silu_mul", [](const Inputs& x) { return silu_mul(x[0], x[1]); }, {r({11, 1237}), r({11, 1237})}});
  c.push_back({"large_gelu", [](const Inputs& x) { return gelu(x[0]); }, {r({11, 1237})}});
  c.push_back({"large_sum", [](const Inputs& x) { return sum(x[0], {0}); }, {r({211, 1237})}});
  c.push_back({"large_group_conv2d",
               [](const Inputs& x) { return conv2d(x[0], x[1], x[2], {.padding = 2, .dilation = 2, .groups = 2}); },
               {r({3, 17, 19, 42}), r({74, 3, 3, 21}), r({74})}});
  c.push_back({"large_depthwise_conv2d",
               [](const Inputs& x) { return conv2d(x[0], x[1], x[2], {.stride = 2, .padding = 1, .groups = 85}); },
               {r({3, 17, 19, 85}), r({85, 3, 3, 1}), r({85})}});
  c.push_back({"large_group_norm",
               [](const Inputs& x) { return group_norm(x[0], 4, x[1], x[2]); },
               {r({5, 31, 29, 84}), r({84}), r({84})}});
  c.push_back({"large_upsample2d",
               [](const Inputs& x) { return upsample2d(Upsampling::kBilinear, x[0], 41, 19); },
               {r({3, 17, 19, 37})}});
  c.push_back({"large_attention_dropout",
               [](const Inputs& x) {
                 WithRandom with({1, 2, std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{5, 9})});
                 return attention(x[0], x[1], x[2], {.drop_probability = 0.1, .drop_site = 3});
               },
               {r({2, 150, 2, 40}), r({2, 77, 1, 40}), r({2, 77, 1, 40})}});
  return c;
}

}  // namespace
}  // namespace lockstep

int main() {
  for (lockstep::DType dtype : {lockstep::DType::kFloat32, lockstep::DType::kBFloat16, lockstep::DType::kFloat16})
    for (const auto& cases : {lockstep::testing::op_cases(), lockstep::large_cases()})
      for (const lockstep::testing::OpCase& c : cases) lockstep::print_bits(c, dtype);
}
