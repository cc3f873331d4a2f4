// Kernels alone, by Google Benchmark: matrix products of training shapes, attention, convolution, norms and pointwise
// passes.
#include <benchmark/benchmark.h>

#include "core/kernels/kernels.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

Tensor filled(const Shape& shape, DType dtype = DType::kFloat32) { return Tensor::full(shape, 0.01, dtype); }

// Arguments: m, n, k, and which operand is transposed: 0 Y = X W^T, 1 dX = dY W, 2 dW = dY^T X.
void gemm(benchmark::State& state, DType dtype) {
  const int64_t m = state.range(0), n = state.range(1), k = state.range(2), form = state.range(3),
                threads = state.range(4);
  Stream stream(Device{}, Stream::Mode::kInline, static_cast<int>(threads));
  WithStream with(stream);
  Tensor a = form == 2 ? filled({k, m}, dtype).transpose(0, 1) : filled({m, k}, dtype);
  Tensor b = form == 0 ? filled({n, k}, dtype).transpose(0, 1) : filled({k, n}, dtype);
  Tensor c = Tensor::empty({m, n}, form == 2 ? DType::kFloat32 : dtype);  // gradients of weights are fp32
  for (auto _ : state) raw::gemm(c, a, b);
  state.counters["GF/s"] =
      benchmark::Counter(2e-9 * static_cast<double>(m * n * k), benchmark::Counter::kIsIterationInvariantRate);
}
void gemm_shapes(benchmark::internal::Benchmark* b) {
  const int64_t shapes[][3] = {{768, 384, 128},  {768, 512, 128},  {2048, 1536, 384},
                               {256, 3072, 768}, {256, 768, 3072}, {256, 50304, 768}};
  for (auto& s : shapes)
    for (int64_t form = 0; form < 3; ++form)
      for (int64_t threads : {1, 2}) b->Args({s[0], s[1], s[2], form, threads});
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

// Forward and backward. Arguments: images, extent, channels in, channels out.
void Conv(benchmark::State& state) {
  Stream stream(Device{}, Stream::Mode::kInline, 2);
  WithStream with(stream);
  Tensor x = filled({state.range(0), state.range(1), state.range(1), state.range(2)}),
         w = filled({state.range(3), 3, 3, state.range(2)});
  require_grad(x);
  require_grad(w);
  for (auto _ : state) {
    clear_grad(x);
    clear_grad(w);
    backward(sum(conv2d(x, w, Tensor(), {.padding = 1})));
  }
}
BENCHMARK(Conv)
    ->Args({64, 28, 1, 32})
    ->Args({64, 26, 32, 64})
    ->Args({32, 32, 64, 64})
    ->Args({32, 8, 256, 256})
    ->UseRealTime();

}  // namespace
}  // namespace lockstep

BENCHMARK_MAIN();
