// Kernels alone, by Google Benchmark: matrix products of training shapes, attention, convolution, norms and pointwise
// passes.
#include <benchmark/benchmark.h>

#include <cmath>
#include <set>

#include "core/kernels/kernels.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

Tensor filled(const Shape& shape, DType dtype = DType::kFloat32) { return Tensor::full(shape, 0.01, dtype); }

// Arguments: m, n, k, which operand is transposed: 0 Y = X W^T, 1 dX = dY W, 2 dW = dY^T X, 3 dW += dY^T X, and
// threads.
void gemm(benchmark::State& state, DType dtype) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2), form = state.range(3),
                threads = state.range(4);
  Stream stream(Device{}, Stream::Mode::kInline, static_cast<int>(threads));
  WithStream with(stream);
  Tensor a = form >= 2 ? filled({k, m}, dtype).transpose(0, 1) : filled({m, k}, dtype);
  Tensor b = form == 0 ? filled({n, k}, dtype).transpose(0, 1) : filled({k, n}, dtype);
  Tensor c = Tensor::zeros({m, n}, form >= 2 ? DType::kFloat32 : dtype);  // gradients of weights are fp32
  for (auto _ : state) raw::gemm(c, a, b, {}, /*accumulate=*/form == 3);
  state.counters["GF/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}
void gemm_shapes(benchmark::internal::Benchmark* b) {
  // Of char, baby, llama (gate and up, down), bert, 124m and its head.
  const int64_t shapes[][3] = {{768, 384, 128},   {768, 512, 128},   {2048, 1536, 384}, {2048, 1152, 384},
                               {2048, 1024, 384}, {2048, 384, 1024}, {2048, 768, 256},  {256, 3072, 768},
                               {256, 768, 3072},  {256, 50304, 768}};
  for (auto& s : shapes)
    for (int64_t form = 0; form < 4; ++form)
      for (const int64_t threads : std::set<int64_t>{1, available_cores()}) b->Args({s[0], s[1], s[2], form, threads});
}
void Gemm(benchmark::State& s) { gemm(s, DType::kFloat32); }
void GemmBf16(benchmark::State& s) { gemm(s, DType::kBFloat16); }
BENCHMARK(Gemm)->Apply(gemm_shapes)->UseRealTime();
BENCHMARK(GemmBf16)->Apply(gemm_shapes)->UseRealTime();

template <class Op>
void pass(benchmark::State& state, double bytes_per_element, Op op) {
  Stream stream(Device{}, Stream::Mode::kInline, static_cast<int>(state.range(0)));
  WithStream with(stream);
  const int64_t n = int64_t(4) << 20;
  Tensor x = filled({n / 1024, 1024});
  for (auto _ : state) benchmark::DoNotOptimize(op(x));
  state.SetBytesProcessed(
      static_cast<int64_t>(static_cast<double>(state.iterations()) * bytes_per_element * static_cast<double>(n)));
}
void Add(benchmark::State& s) {
  pass(s, 12, [](const Tensor& x) { return add(x, x); });
}
void Gelu(benchmark::State& s) {
  pass(s, 8, [](const Tensor& x) { return gelu(x); });
}
void LayerNormForward(benchmark::State& s) {
  Tensor w = filled({1024});
  pass(s, 8, [&](const Tensor& x) { return layer_norm(x, w, w); });
}
void Softmax(benchmark::State& s) {
  pass(s, 8, [](const Tensor& x) { return softmax(x); });
}
BENCHMARK(Add)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(Gelu)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(LayerNormForward)->Arg(1)->Arg(2)->UseRealTime();
BENCHMARK(Softmax)->Arg(1)->Arg(2)->UseRealTime();

// Forward and backward. Arguments: batch, time, heads, head width.
void Attention(benchmark::State& state) {
  Stream stream(Device{}, Stream::Mode::kInline, 2);
  WithStream with(stream);
  Tensor qkv = filled({state.range(0), state.range(1), 3 * state.range(2) * state.range(3)});
  require_grad(qkv);
  for (auto _ : state) {
    clear_grad(qkv);
    backward(sum(causal_attention(qkv, state.range(2))));
  }
}
BENCHMARK(Attention)->Args({12, 64, 4, 32})->Args({8, 256, 6, 64})->Args({1, 1024, 12, 64})->UseRealTime();

// Causal attention alone, on one thread. Arguments: time, width of a head, and the part: 0 forward, 1 backward. The
// rate counts a query's products with the keys that it sees, and no others.
void AttentionOfOneThread(benchmark::State& state) {
  Stream stream(Device{}, Stream::Mode::kInline, 1);
  WithStream with(stream);
  const int64_t time = state.range(0), dim = state.range(1), heads = 8, tokens = 16384 / dim / 4;
  AttentionArgs a;
  a.batch = std::max<int64_t>(1, tokens / time), a.time = time, a.heads = a.kv_heads = heads, a.dim = dim;
  a.scale = 1 / std::sqrt(static_cast<double>(dim));
  const Tensor qkv = filled({a.batch, time, 3 * heads * dim}), dy = filled({a.batch, time, heads * dim}),
               dqkv = Tensor::zeros(qkv.shape()), y = Tensor::zeros(dy.shape()),
               lse = Tensor::zeros({a.batch, heads, time});
  a.unpack(qkv.write(), dqkv.write());
  a.y = y.write(), a.dy = dy.write(), a.lse = lse.write();
  const auto forward = [](Parallel& p, const AttentionArgs& args) { kernels(p).attention(p, args); };
  const auto backward = [](Parallel& p, const AttentionArgs& args) { kernels(p).attention_backward(p, args); };
  raw::launch(forward, a);
  for (auto _ : state) state.range(2) == 0 ? raw::launch(forward, a) : raw::launch(backward, a);
  const double pairs = static_cast<double>(a.batch * heads * time * (time + 1) / 2);
  state.counters["flops"] = benchmark::Counter((state.range(2) == 0 ? 4 : 10) * static_cast<double>(dim) * pairs,
                                               benchmark::Counter::kIsIterationInvariantRate);
}
BENCHMARK(AttentionOfOneThread)->ArgsProduct({{64, 256, 1024, 2048}, {32, 64, 128}, {0, 1}})->UseRealTime();

// Forward and backward. Arguments: images, extent, channels in, channels out.
// Arguments: images, their height and width, channels in and out, size of the kernel, and the part: 0 forward, 1 the
// gradient of the input, 2 of the weights.
void Conv(benchmark::State& state) {
  Stream stream(Device{}, Stream::Mode::kInline, 2);
  WithStream with(stream);
  const int64_t images = state.range(0), extent = state.range(1), in = state.range(2), out = state.range(3),
                size = state.range(4);
  Tensor x = filled({images, extent, extent, in}), w = filled({out, size, size, in}),
         y = filled({images, extent, extent, out});
  ConvArgs a;
  a.images = images, a.height = a.width = a.out_height = a.out_width = extent;
  a.in_channels = in, a.out_channels = out, a.kernel_h = a.kernel_w = size, a.padding = size / 2;
  a.x = x.write(), a.weight = w.write(), a.y = y.write();
  for (auto _ : state) {
    if (state.range(5) == 0) raw::launch([](Parallel& p, const ConvArgs& c) { kernels(p).conv(p, c); }, a);
    if (state.range(5) == 1)
      raw::launch([](Parallel& p, const ConvArgs& c) { kernels(p).conv_backward_input(p, c); }, a);
    if (state.range(5) == 2)
      raw::launch([](Parallel& p, const ConvArgs& c) { kernels(p).conv_backward_weight(p, c); }, a);
  }
  state.counters["GF/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(images * extent * extent * in * out * size * size),
                         benchmark::Counter::kIsIterationInvariantRate);
}
void conv_shapes(benchmark::internal::Benchmark* b) {
  const int64_t shapes[][5] = {{64, 28, 1, 32, 3},   {8, 64, 32, 32, 3},   {8, 64, 64, 32, 3},
                               {8, 32, 64, 64, 3},   {8, 16, 128, 128, 3}, {32, 16, 128, 128, 3},
                               {32, 8, 256, 256, 3}, {32, 4, 512, 512, 3}, {8, 8, 256, 1024, 1}};
  for (auto& s : shapes)
    for (int64_t part = 0; part < 3; ++part) b->Args({s[0], s[1], s[2], s[3], s[4], part});
}
BENCHMARK(Conv)->Apply(conv_shapes)->UseRealTime();

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
