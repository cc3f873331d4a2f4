#include "tests/core/ops/op_cases.h"

#include "core/ops/ops.h"
#include "tests/support/gradcheck.h"

namespace lockstep::testing {
namespace {

using Inputs = std::vector<Tensor>;

Tensor indices(const std::vector<int32_t>& v, const Shape& s) { return Tensor::of(v, s); }

OpCase exact(OpCase c) {
  c.on_gpu = Exact::kAll;
  return c;
}
OpCase exact_result(OpCase c) {
  c.on_gpu = Exact::kResult;
  return c;
}

}  // namespace

std::vector<OpCase> op_cases() {
  auto r = [](Shape s, uint64_t seed, double lo = -1, double hi = 1) { return random_tensor(s, seed, lo, hi); };
  std::vector<OpCase> c;
  c.push_back(exact_result(
      {"add_broadcast", [](const Inputs& x) { return add(x[0], x[1]); }, {r({3, 1, 5}, 1), r({4, 5}, 2)}}));
  c.push_back(exact_result({"sub", [](const Inputs& x) { return sub(x[0], x[1]); }, {r({3, 5}, 1), r({5}, 2)}}));
  c.push_back(exact_result({"mul", [](const Inputs& x) { return mul(x[0], x[1]); }, {r({2, 3, 5}, 1), r({3, 1}, 2)}}));
  c.push_back(exact({"mul_with_itself", [](const Inputs& x) { return mul(x[0], x[0]); }, {r({7}, 1)}}));
  c.push_back(exact({"div", [](const Inputs& x) { return div(x[0], x[1]); }, {r({3, 5}, 1), r({3, 5}, 2, 0.5, 2)}}));
  c.push_back(exact({"affine", [](const Inputs& x) { return affine(x[0], -2.5, 0.25); }, {r({11}, 1)}}));
  for (const UnaryFunction& f : kUnaryFunctions)
    c.push_back(
        exact({f.name, [op = f.forward](const Inputs& x) { return unary(op, x[0]); }, {r({3, 7}, 1, f.low, f.high)}}));
  c.push_back(exact({"log_sigmoid", [](const Inputs& x) { return log_sigmoid(x[0]); }, {r({3, 7}, 1, -4, 4)}}));
  c.push_back(exact({"leaky_relu", [](const Inputs& x) { return leaky_relu(x[0], 0.2); }, {r({3, 7}, 1)}}));
  c.push_back(exact({"abs", [](const Inputs& x) { return abs(x[0]); }, {r({3, 7}, 1)}}));
  c.push_back(exact({"clamp", [](const Inputs& x) { return clamp(x[0], -0.25, 0.5); }, {r({3, 7}, 1)}}));
  c.push_back(exact({"pow", [](const Inputs& x) { return pow(x[0], -1.7); }, {r({3, 7}, 1, 0.5, 2)}, 1e-6, 4}));
  c.push_back(exact({"pow_of_whole_number", [](const Inputs& x) { return pow(x[0], 3); }, {r({3, 7}, 1)}}));
  c.push_back(
      exact_result({"maximum", [](const Inputs& x) { return maximum(x[0], x[1]); }, {r({3, 1, 5}, 1), r({4, 5}, 2)}}));
  c.push_back(
      exact_result({"minimum", [](const Inputs& x) { return minimum(x[0], x[1]); }, {r({3, 5}, 1), r({3, 1}, 2)}}));
  c.push_back(exact_result({"where",
                            [](const Inputs& x) { return where(gt(x[2], x[0].detach()), x[0], x[1]); },
                            {r({3, 5}, 1), r({2, 1, 5}, 2), indices({0, 1, -1, 0, 1}, {5})}}));
  c.push_back(exact({"reshape", [](const Inputs& x) { return reshape(x[0], {5, -1}); }, {r({2, 5, 3}, 1)}}));
  c.push_back(exact({"permute", [](const Inputs& x) { return permute(x[0], {2, 0, 1}); }, {r({2, 5, 3}, 1)}}));
  c.push_back(exact({"transpose_then_reshape",
                     [](const Inputs& x) { return reshape(transpose(x[0], 0, 1), {10}); },
                     {r({2, 5}, 1)}}));
  c.push_back(exact({"slice", [](const Inputs& x) { return slice(x[0], 1, 1, 4); }, {r({3, 5}, 1)}}));
  c.push_back(exact({"slice_twice",
                     [](const Inputs& x) { return add(slice(x[0], 1, 0, 3), slice(x[0], 1, 2, 5)); },
                     {r({3, 5}, 1)}}));
  c.push_back(exact_result({"expand", [](const Inputs& x) { return expand(x[0], {4, 3, 5}); }, {r({3, 1}, 1)}}));
  c.push_back({"sum_all", [](const Inputs& x) { return sum(x[0]); }, {r({3, 5, 2}, 1)}});
  c.push_back({"sum_first", [](const Inputs& x) { return sum(x[0], {0}); }, {r({300, 5}, 1)}, 1e-6, 20});
  c.push_back({"sum_outer_and_inner", [](const Inputs& x) { return sum(x[0], {0, 2}); }, {r({3, 5, 4}, 1)}});
  c.push_back({"mean_middle", [](const Inputs& x) { return mean(x[0], {1}); }, {r({3, 5, 4}, 1)}});
  c.push_back(exact({"max_all", [](const Inputs& x) { return max(x[0]); }, {r({3, 5, 4}, 1)}}));
  c.push_back(exact({"max_outer_and_inner", [](const Inputs& x) { return max(x[0], {0, 2}); }, {r({3, 5, 4}, 1)}}));
  c.push_back(exact({"min_middle", [](const Inputs& x) { return min(x[0], {1}); }, {r({3, 5, 4}, 1)}}));
  c.push_back(exact({"topk", [](const Inputs& x) { return topk(x[0], 4).values; }, {r({2, 3, 37}, 1)}}));
  c.push_back(exact({"cumsum", [](const Inputs& x) { return cumsum(x[0]); }, {r({2, 3, 19}, 1)}, 1e-6, 3}));
  c.push_back(exact({"gather",
                     [](const Inputs& x) { return gather(x[0], x[1]); },
                     {r({2, 5}, 1), indices({4, 0, 0, 3, 0, 1, 1, 1, 2, 4, 4, 4}, {2, 6})},
                     1e-6,
                     2}));
  c.push_back(exact({"scatter_add",
                     [](const Inputs& x) { return scatter_add(x[0], x[2], x[1]); },
                     {r({2, 5}, 1), r({2, 6}, 2), indices({4, 0, 0, 3, 0, 1, 1, 1, 2, 4, 4, 4}, {2, 6})},
                     1e-6,
                     2}));
  c.push_back({"matmul", [](const Inputs& x) { return matmul(x[0], x[1]); }, {r({5, 7}, 1), r({7, 3}, 2)}, 1e-6, 2});
  c.push_back(
      {"matmul_rows", [](const Inputs& x) { return matmul(x[0], x[1]); }, {r({2, 5, 7}, 1), r({7, 3}, 2)}, 1e-6, 2});
  c.push_back({"matmul_batched",
               [](const Inputs& x) { return matmul(x[0], x[1]); },
               {r({2, 2, 5, 4}, 1), r({2, 2, 4, 3}, 2)},
               1e-6,
               2});
  c.push_back({"matmul_transposed",
               [](const Inputs& x) { return matmul(x[0], transpose(x[1], 0, 1)); },
               {r({5, 7}, 1), r({3, 7}, 2)},
               1e-6,
               2});
  c.push_back({"linear",
               [](const Inputs& x) { return linear(x[0], x[1], x[2]); },
               {r({2, 3, 9}, 1), r({17, 9}, 2), r({17}, 3)},
               1e-6,
               3});
  c.push_back({"linear_without_bias",
               [](const Inputs& x) { return linear(x[0], x[1]); },
               {r({4, 9}, 1), r({3, 9}, 2)},
               1e-6,
               2});
  c.push_back({"feed_forward",
               [](const Inputs& x) { return feed_forward(x[0], x[1], x[2], x[3], x[4]); },
               {r({2, 3, 9}, 1), r({16, 9}, 2), r({16}, 3), r({7, 16}, 4), r({7}, 5)},
               1e-6,
               5});
  c.push_back({"feed_forward_without_biases",
               [](const Inputs& x) { return feed_forward(x[0], x[1], Tensor(), x[2], Tensor()); },
               {r({4, 9}, 1), r({13, 9}, 2), r({9, 13}, 3)},
               1e-6,
               5});
  c.push_back({"feed_forward_twice_with_one_weight",
               [](const Inputs& x) {
                 const Tensor down = transpose(x[1], 0, 1);
                 return feed_forward(feed_forward(x[0], x[1], x[2], down, x[3]), x[1], x[2], down, x[3]);
               },
               {r({5, 6}, 1), r({10, 6}, 2, -0.5, 0.5), r({10}, 3), r({6}, 4)},
               1e-6,
               8});
  c.push_back(
      exact({"dropout",
             [](const Inputs& x) {
               WithRandom with({1, 2, std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{5, 6, 9})});
               return dropout(x[0], 0.3, 11);
             },
             {r({3, 4, 7}, 1)}}));
  c.push_back({"softmax", [](const Inputs& x) { return softmax(x[0]); }, {r({3, 37}, 1, -3, 3)}});
  std::vector<int32_t> many_targets(70);  // of 70 rows: more than are held at a time
  for (size_t i = 0; i < many_targets.size(); ++i)
    many_targets[i] = i % 9 == 4 ? static_cast<int32_t>(kIgnoreIndex) : static_cast<int32_t>(i * 7 % 11);
  c.push_back({"cross_entropy",
               [](const Inputs& x) { return cross_entropy(x[0], x[1]); },
               {r({5, 41}, 1, -3, 3), indices({3, 40, kIgnoreIndex, 0, 7}, {5})},
               1e-6,
               3});
  c.push_back({"linear_cross_entropy",
               [](const Inputs& x) { return linear_cross_entropy(x[0], x[1], x[2], 64, kIgnoreIndex, 0.1); },
               {r({2, 35, 6}, 1, -1, 1), r({11, 6}, 2, -1, 1), indices(many_targets, {2, 35})},
               1e-6,
               3});
  c.push_back({"linear_cross_entropy_capped",
               [](const Inputs& x) { return linear_cross_entropy(x[0], x[1], x[2], 64, kIgnoreIndex, 0.1, 1.5); },
               {r({2, 35, 6}, 1, -1, 1), r({11, 6}, 2, -1, 1), indices(many_targets, {2, 35})},
               1e-6,
               3});
  c.push_back({"token_losses",
               [](const Inputs& x) {
                 const Tensor each = token_losses(x[0], x[1]);
                 return sum(mul(each, each));
               },
               {r({5, 41}, 1, -3, 3), indices({3, 40, kIgnoreIndex, 0, 7}, {5})},
               1e-6,
               3});
  c.push_back({"linear_token_losses",
               [](const Inputs& x) {
                 const Tensor each = linear_token_losses(x[0], x[1], x[2], 64);
                 return sum(mul(each, each));
               },
               {r({2, 35, 6}, 1, -1, 1), r({11, 6}, 2, -1, 1), indices(many_targets, {2, 35})},
               1e-6,
               3});
  c.push_back({"cross_entropy_with_gradient",  // as predicted where the loss counts 0.75, else rescaled
               [](const Inputs& x) {
                 WithLossGradient predicted(0.75);
                 return cross_entropy(affine(x[0], 1.5), x[1]);
               },
               {r({5, 41}, 1, -3, 3), indices({3, 40, kIgnoreIndex, 0, 7}, {5})},
               1e-6,
               3});
  c.push_back({"cross_entropy_smoothed",
               [](const Inputs& x) { return cross_entropy(x[0], x[1], kIgnoreIndex, 0.1); },
               {r({5, 41}, 1, -3, 3), indices({3, 40, kIgnoreIndex, 0, 7}, {5})},
               1e-6,
               3});
  c.push_back({"cross_entropy_smoothed_with_gradient",
               [](const Inputs& x) {
                 WithLossGradient predicted(0.75);
                 return cross_entropy(affine(x[0], 1.5), x[1], kIgnoreIndex, 0.1);
               },
               {r({5, 41}, 1, -3, 3), indices({3, 40, kIgnoreIndex, 0, 7}, {5})},
               1e-6,
               3});
  c.push_back({"log_softmax", [](const Inputs& x) { return log_softmax(x[0]); }, {r({3, 37}, 1, -3, 3)}});
  c.push_back({"mse_loss", [](const Inputs& x) { return mse_loss(x[0], x[1]); }, {r({3, 7}, 1), r({3, 7}, 2)}});
  c.push_back(
      {"huber_loss", [](const Inputs& x) { return huber_loss(x[0], x[1], 0.75); }, {r({3, 7}, 1), r({3, 7}, 2)}});
  c.push_back({"bce_with_logits",
               [](const Inputs& x) { return bce_with_logits(x[0], x[1]); },
               {r({3, 7}, 1, -4, 4), r({3, 7}, 2, 0, 1)}});
  c.push_back(
      {"kl_div", [](const Inputs& x) { return kl_div(x[0], x[1]); }, {r({3, 7}, 1, -4, 0), r({3, 7}, 2, 0.1, 1)}});
  c.push_back({"binary_focal_loss",
               [](const Inputs& x) { return binary_focal_loss(x[0], x[1]); },
               {r({3, 7}, 1, -4, 4), r({3, 7}, 2, 0, 1)}});
  c.push_back({"focal_loss",
               [](const Inputs& x) { return focal_loss(x[0], x[1], 1.5); },
               {r({4, 7}, 1, -3, 3), indices({3, kIgnoreIndex, 0, 6}, {4})},
               1e-6,
               3});
  for (const double smoothing : {0.0, 0.1})
    c.push_back({smoothing > 0 ? "mixed_cross_entropy_smoothed" : "mixed_cross_entropy",
                 [=](const Inputs& x) { return mixed_cross_entropy(x[0], x[1], x[2], x[3], smoothing); },
                 {r({4, 7}, 1, -3, 3), indices({3, 2, 0, 6}, {4}), indices({3, 5, 1, 0}, {4}), r({4}, 2, 0, 1)},
                 1e-6,
                 3});
  for (const double smoothing : {0.0, 0.1})
    c.push_back({smoothing > 0 ? "weighted_cross_entropy_smoothed" : "weighted_cross_entropy",
                 [=](const Inputs& x) {
                   const Tensor weights = Tensor::of<float>({1, 2.5f, 0, 0.5f, 1, 1, 3}, {7});
                   return weighted_cross_entropy(x[0], x[1], weights, kIgnoreIndex, smoothing);
                 },
                 {r({4, 7}, 1, -3, 3), indices({3, kIgnoreIndex, 1, 6}, {4})},
                 1e-6,
                 3});
  c.push_back({"weighted_cross_entropy_of_rows",
               [](const Inputs& x) {
                 const Tensor rows = Tensor::of<float>({0.5f, 2, 0, 3}, {4});
                 const Tensor both = weighted_cross_entropy(
                     x[0], x[1], Tensor::of<float>({1, 2.5f, 0, 0.5f, 1, 1, 3}, {7}), kIgnoreIndex, 0.1, rows);
                 return add(both, weighted_cross_entropy(x[0], x[1], {}, kIgnoreIndex, 0, rows));
               },
               {r({4, 7}, 1, -3, 3), indices({3, kIgnoreIndex, 1, 6}, {4})},
               1e-6,
               3});
  c.push_back({"weighted_squares",
               [](const Inputs& x) {
                 const Tensor weights = Tensor::of<float>({0.5f, 2, 0, 3, 1}, {5});
                 return add(mse_loss(x[0], x[1], weights), huber_loss(x[0], x[1], 0.75, weights));
               },
               {r({5}, 1), r({5}, 2)}});
  c.push_back({"dice_loss",
               [](const Inputs& x) { return dice_loss(x[0], x[1]); },
               {r({3, 2, 5}, 1, 0.05, 0.95), r({3, 2, 5}, 2, 0, 1)},
               1e-6,
               3});
  // Multiplied by something: the sum of what is normalised does not depend on x.
  c.push_back({"batch_norm",
               [](const Inputs& x) { return mul(batch_norm(x[0], x[1], x[2]).y, x[3]); },
               {r({3, 4, 2, 5}, 1), r({5}, 2, 0.5, 2), r({5}, 3), r({3, 4, 2, 5}, 4)},
               1e-5,
               4});
  c.push_back({"batch_norm_relu",
               [](const Inputs& x) {
                 BatchNormOptions o;
                 o.relu = true;
                 return batch_norm(x[0], x[1], x[2], o).y;
               },
               {r({19, 67}, 1), r({67}, 2, 0.5, 2), r({67}, 3)},
               1e-5,
               4});
  c.push_back({"batch_norm_add",
               [](const Inputs& x) {
                 BatchNormOptions o;
                 o.addend = x[3];
                 return mul(batch_norm(x[0], x[1], x[2], o).y, x[3]);
               },
               {r({2, 3, 8}, 1), r({8}, 2, 0.5, 2), r({8}, 3), r({2, 3, 8}, 4)},
               1e-5,
               4});
  c.push_back({"batch_norm_add_relu",
               [](const Inputs& x) {
                 BatchNormOptions o;
                 o.addend = x[3], o.relu = true;
                 return batch_norm(x[0], x[1], x[2], o).y;
               },
               {r({2, 3, 8}, 1), r({8}, 2, 0.5, 2), r({8}, 3), r({2, 3, 8}, 4)},
               1e-5,
               4});
  c.push_back({"batch_norm_fixed",
               [](const Inputs& x) {
                 BatchNormOptions o;
                 o.relu = true;
                 o.fixed_mean = Tensor::of(std::vector<double>{0.5, -0.25, 0}, {3});
                 o.fixed_variance = Tensor::of(std::vector<double>{0.5, 2, 1}, {3});
                 return batch_norm(x[0], x[1], x[2], o).y;
               },
               {r({4, 5, 3}, 1), r({3}, 2, 0.5, 2), r({3}, 3)},
               1e-5,
               3});
  for (Cell cell : {Cell::kLstm, Cell::kGru})
    for (bool reverse : {false, true}) {
      const int64_t gates = (cell == Cell::kLstm ? 4 : 3) * 5;
      const char* const name = cell == Cell::kLstm ? reverse ? "lstm_reverse" : "lstm"
                               : reverse           ? "gru_reverse"
                                                   : "gru";
      c.push_back({name,
                   [cell, reverse](const Inputs& x) { return recurrent(cell, x[0], x[1], x[2], x[3], x[4], reverse); },
                   {r({3, 4, 6}, 1), r({gates, 6}, 2), r({gates, 5}, 3), r({gates}, 4), r({gates}, 5)},
                   1e-6,
                   4});
    }
  c.push_back({"concat",
               [](const Inputs& x) {
                 return concat({x[0], x[1], x[0]}, 1);
               },
               {r({2, 3, 2}, 1), r({2, 1, 2}, 2)}});
  c.push_back(exact({"stack",
                     [](const Inputs& x) {
                       return stack({x[0], x[1], x[0]}, 1);
                     },
                     {r({2, 3}, 1), r({2, 3}, 2)}}));
  c.push_back({"split",
               [](const Inputs& x) {
                 const std::vector<Tensor> parts = split(x[0], {2, 1, 2}, -1);
                 return mul(concat({parts[2], parts[1], parts[0]}, -1), parts[1]);
               },
               {r({3, 5}, 1)}});
  c.push_back(exact({"pad",
                     [](const Inputs& x) {
                       return pad(x[0], {{1, 2}, {0, 0}, {3, 1}}, -0.5);
                     },
                     {r({2, 3, 2}, 1)}}));
  c.push_back({"layer_norm",
               [](const Inputs& x) { return layer_norm(x[0], x[1], x[2]); },
               {r({2, 3, 19}, 1), r({19}, 2), r({19}, 3)},
               1e-5,
               3});
  c.push_back({"layer_norm_without_bias",
               [](const Inputs& x) { return layer_norm(x[0], x[1], Tensor()); },
               {r({4, 19}, 1), r({19}, 2)},
               1e-5,
               3});
  c.push_back({"residual_layer_norm",
               [](const Inputs& x) { return add(x[0], layer_norm(x[0], x[1], x[2])); },
               {r({4, 19}, 1), r({19}, 2), r({19}, 3)},
               1e-5,
               3});
  c.push_back({"add_layer_norm",
               [](const Inputs& x) {
                 const AddLayerNorm out = add_layer_norm(x[0], x[1], x[2], x[3]);
                 return add(out.sum, affine(out.y, 0.5));
               },
               {r({2, 3, 19}, 1), r({2, 3, 19}, 2), r({19}, 3), r({19}, 4)},
               1e-5,
               3});
  c.push_back(
      {"rms_norm", [](const Inputs& x) { return rms_norm(x[0], x[1]); }, {r({2, 3, 19}, 1), r({19}, 2)}, 1e-5, 3});
  c.push_back({"residual_rms_norm",
               [](const Inputs& x) { return add(x[0], rms_norm(x[0], x[1])); },
               {r({4, 19}, 1), r({19}, 2)},
               1e-5,
               3});
  c.push_back(
      exact({"silu_mul", [](const Inputs& x) { return silu_mul(x[0], x[1]); }, {r({3, 7}, 1, -4, 4), r({3, 7}, 2)}}));
  c.push_back(exact({"rotary",
                     [](const Inputs& x) {
                       return rotary(x[0], {1, 0.3, 0.07});
                     },
                     {r({2, 5, 3, 6}, 1)},
                     1e-6,
                     2}));
  c.push_back(exact({"rotary_part",
                     [](const Inputs& x) {
                       return rotary(x[0], {1, 0.3}, indices({3, 0}, {2}));
                     },
                     {r({2, 5, 3, 8}, 1)},
                     1e-6,
                     2}));
  c.push_back(exact({"soft_cap", [](const Inputs& x) { return soft_cap(x[0], 2.5); }, {r({3, 7}, 1, -6, 6)}}));
  c.push_back(exact({"embedding",
                     [](const Inputs& x) { return embedding(x[0], x[1]); },
                     {r({6, 5}, 1), indices({1, 5, 1, 0, 2, 1}, {2, 3})},
                     1e-6,
                     2}));
  c.push_back({"tied_embedding",  // the table is also the head
               [](const Inputs& x) { return linear(embedding(x[0], x[1]), x[0]); },
               {r({6, 5}, 1), indices({1, 5, 1}, {3})},
               1e-6,
               5});
  c.push_back({"conv2d",
               [](const Inputs& x) { return conv2d(x[0], x[1], x[2]); },
               {r({3, 6, 7, 2}, 1), r({4, 3, 3, 2}, 2), r({4}, 3)},
               1e-6,
               6});
  c.push_back({"conv2d_stride_padding",
               [](const Inputs& x) { return conv2d(x[0], x[1], Tensor(), {.stride = 2, .padding = 1}); },
               {r({2, 7, 6, 3}, 1), r({5, 3, 3, 3}, 2)},
               1e-6,
               6});
  c.push_back({"conv2d_wide_kernel",
               [](const Inputs& x) { return conv2d(x[0], x[1], Tensor(), {.stride = 3, .padding = 2}); },
               {r({2, 9, 9, 1}, 1), r({3, 5, 4, 1}, 2)},
               1e-6,
               6});
  for (const auto& [name, channels, out, kernel, options] :
       {std::tuple{"conv2d_dilated", 3, 2, 3, ConvOptions{.padding = 2, .dilation = 2}},
        std::tuple{"conv2d_dilated_strided", 2, 3, 2, ConvOptions{.stride = 2, .padding = 1, .dilation = 3}},
        std::tuple{"conv2d_groups", 4, 6, 3, ConvOptions{.padding = 1, .groups = 2}},
        std::tuple{"conv2d_groups_dilated", 6, 3, 3,
                   ConvOptions{.stride = 2, .padding = 1, .dilation = 2, .groups = 3}},
        std::tuple{"conv2d_depthwise", 5, 5, 3, ConvOptions{.padding = 1, .groups = 5}},
        std::tuple{"conv2d_depthwise_strided", 3, 3, 2, ConvOptions{.stride = 2, .padding = 1, .groups = 3}},
        std::tuple{"conv2d_depthwise_dilated", 2, 2, 3,
                   ConvOptions{.stride = 3, .padding = 2, .dilation = 2, .groups = 2}},
        std::tuple{"conv2d_depthwise_twofold", 3, 6, 3, ConvOptions{.padding = 1, .groups = 3}}})
    c.push_back({name,
                 [options = options](const Inputs& x) { return conv2d(x[0], x[1], x[2], options); },
                 {r({2, 7, 6, channels}, 1), r({out, kernel, kernel, channels / options.groups}, 2), r({out}, 3)},
                 1e-6,
                 6});
  c.push_back({"avg_pool2d", [](const Inputs& x) { return avg_pool2d(x[0], 2, 2); }, {r({2, 5, 6, 3}, 1)}});
  for (bool count : {false, true})
    c.push_back({count ? "avg_pool2d_padded" : "avg_pool2d_of_pixels_alone",
                 [count](const Inputs& x) { return avg_pool2d(x[0], 3, 2, 1, count); },
                 {r({2, 5, 6, 3}, 1)}});
  c.push_back(
      {"adaptive_avg_pool2d", [](const Inputs& x) { return adaptive_avg_pool2d(x[0], 3, 5); }, {r({2, 5, 7, 3}, 1)}});
  c.push_back({"adaptive_avg_pool2d_of_all",
               [](const Inputs& x) { return adaptive_avg_pool2d(x[0], 1, 1); },
               {r({2, 5, 7, 3}, 1)}});
  for (Upsampling how : {Upsampling::kNearest, Upsampling::kBilinear}) {
    const bool nearest = how == Upsampling::kNearest;
    c.push_back({nearest ? "upsample2d_nearest" : "upsample2d_bilinear",
                 [how](const Inputs& x) { return upsample2d(how, x[0], 2); },
                 {r({2, 3, 4, 3}, 1)}});
    c.push_back({nearest ? "upsample2d_nearest_to_size" : "upsample2d_bilinear_to_size",
                 [how](const Inputs& x) { return upsample2d(how, x[0], 7, 3); },
                 {r({2, 3, 4, 3}, 1)}});
  }
  for (const auto& [name, groups] :
       {std::pair{"group_norm", 2}, std::pair{"group_norm_of_one_group", 1}, std::pair{"group_norm_of_channels", 6}})
    c.push_back({name,
                 [groups = groups](const Inputs& x) { return mul(group_norm(x[0], groups, x[1], x[2]), x[3]); },
                 {r({3, 4, 2, 6}, 1), r({6}, 2, 0.5, 2), r({6}, 3), r({3, 4, 2, 6}, 4)},
                 1e-5,
                 4});
  c.push_back(exact({"max_pool2d", [](const Inputs& x) { return max_pool2d(x[0], 2, 2); }, {r({2, 5, 6, 3}, 1)}}));
  c.push_back({"attention",
               [](const Inputs& x) { return attention(x[0], x[1], x[2]); },
               {r({2, 9, 4, 3}, 1, -2, 2), r({2, 9, 2, 3}, 2, -2, 2), r({2, 9, 2, 3}, 3)},
               1e-6,
               4});
  c.push_back({"attention_with_lengths",
               [](const Inputs& x) {
                 return attention(x[0], x[1], x[2], {.lengths = Tensor::of(std::vector<int32_t>{7, 70}, {2})});
               },
               {r({2, 70, 1, 3}, 1, -2, 2), r({2, 70, 1, 3}, 2, -2, 2), r({2, 70, 1, 3}, 3)},
               1e-6,
               4});
  // Lengths and documents are made on the device of the case.
  struct Masks {
    const char* name;
    int64_t time, keys;
    bool causal = false;
    double drop = 0;
    std::vector<int32_t> lengths = {}, documents = {};
    double cap = 0;
  };
  const std::vector<int32_t> documents{0, 0, 1, 1, 1, 2, 2, 2, 2, 5, 5, 4, 4, 4, 4, 4, 4, 5};  // 5: in two pieces
  for (const Masks& m :
       {Masks{"attention_cross", 5, 9}, Masks{"attention_cross_with_lengths", 70, 9, false, 0, {9, 4}},
        Masks{"attention_cross_tiles", 3, 70}, Masks{"attention_documents", 9, 9, false, 0, {}, documents},
        Masks{"attention_causal_documents", 9, 9, true, 0, {}, documents}, Masks{"attention_dropout", 9, 9, true, 0.3},
        Masks{"attention_dropout_tiles", 70, 70, false, 0.3, {67, 70}},
        Masks{"attention_cross_dropout", 4, 7, false, 0.3}, Masks{"attention_capped", 9, 9, true, 0, {}, {}, 1.5},
        Masks{"attention_capped_tiles", 70, 70, true, 0.3, {}, {}, 0.8},
        Masks{"attention_capped_documents", 9, 9, false, 0, {}, documents, 2}})
    c.push_back({m.name,
                 [m](const Inputs& x) {
                   WithRandom with({1, 2, std::make_shared<const std::vector<int64_t>>(std::vector<int64_t>{5, 9})});
                   AttentionOptions o{
                       .causal = m.causal, .drop_probability = m.drop, .drop_site = 11, .score_cap = m.cap};
                   if (!m.lengths.empty()) o.lengths = indices(m.lengths, {2});
                   if (!m.documents.empty()) o.documents = indices(m.documents, {2, m.time});
                   return attention(x[0], x[1], x[2], o);
                 },
                 {r({2, m.time, 2, 3}, 1, -2, 2), r({2, m.keys, 1, 3}, 2, -2, 2), r({2, m.keys, 1, 3}, 3)},
                 1e-6,
                 4});
  c.push_back({"conv_transpose2d",
               [](const Inputs& x) { return conv_transpose2d(x[0], x[1], x[2], 2); },
               {r({2, 3, 4, 5}, 1), r({5, 2, 2, 3}, 2), r({3}, 3)},
               1e-6,
               3});
  c.push_back({"conv_transpose2d_padded",
               [](const Inputs& x) { return conv_transpose2d(x[0], x[1], Tensor(), 2, 1); },
               {r({2, 3, 4, 3}, 1), r({3, 4, 4, 2}, 2)},
               1e-6,
               3});
  c.push_back({"max_pool2d_padded", [](const Inputs& x) { return max_pool2d(x[0], 3, 2, 1); }, {r({2, 5, 6, 3}, 1)}});
  c.push_back(
      exact({"max_pool2d_overlapping", [](const Inputs& x) { return max_pool2d(x[0], 3, 1); }, {r({2, 5, 6, 2}, 1)}}));
  c.push_back(
      {"causal_attention", [](const Inputs& x) { return causal_attention(x[0], 2); }, {r({2, 5, 24}, 1)}, 1e-6, 3});
  c.push_back({"causal_attention_tiles",
               [](const Inputs& x) { return causal_attention(x[0], 1); },
               {r({1, 70, 6}, 1)},
               1e-6,
               3});
  for (const auto& [name, heads, kv_heads, time, window] :
       {std::tuple{"attention_of_parts", 2, 2, 5, 0}, std::tuple{"attention_grouped", 4, 2, 5, 0},
        std::tuple{"attention_window", 2, 2, 9, 3}, std::tuple{"attention_grouped_window_tiles", 2, 1, 70, 11}})
    c.push_back({name,
                 [window = window](const Inputs& x) { return causal_attention(x[0], x[1], x[2], window); },
                 {r({2, time, heads, 4}, 1), r({2, time, kv_heads, 4}, 2), r({2, time, kv_heads, 4}, 3)},
                 1e-6,
                 3});
  return c;
}

}  // namespace lockstep::testing
