// The kernels of GPT-2's training steps, one by one, on one device: time, rate, and how near that comes to what the
// device can do at most; one table.
//   gpu_kernels [cuda|cpu] [small]           default: cuda, GPT-2 124M of 64 x 1024 tokens and 1558M of 16 x 1024
//                                            exit 1 where a row fails, or a library refuses one of these shapes
//   gpu_kernels limits [cuda|cpu] [small]    only what the device can do at most, as one JSON line: the benchmark's
//                                            yardstick
// A row: the time of one launch with exact algorithms, and with those that `reduce: fast` would take; the rate; the
// floor, the longer of the time of its operations at the rate of large square products and the time of its bytes at the
// rate of copies, both measured first; and the floor as a share of the exact time. Launches are queued behind each
// other for tens of milliseconds between two events of the GPU, so that the host's part is not seen.
// They take turns at several sets of operands, so that none lies in the cache. A row that fails says why, and the rest
// goes on. After the table: what the libraries chose for each shape, with the times of each candidate.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <functional>
#include <sstream>
#include <string>
#include <vector>

#include "core/kernels/attention/kind_of.h"
#include "core/kernels/kernels.h"
#include "core/tensor/raw_ops.h"

namespace lockstep {
namespace {

constexpr int64_t kCacheBytes = int64_t(256) << 20;  // more than any GPU's
constexpr double kLeastSeconds = 0.03;               // of one measurement

using Launch = std::function<void()>;
struct Case {
  std::string name;
  double flops = 0, bytes = 0;   // bytes: what must be read and written at least
  std::function<Launch()> make;  // a set of operands, held by what it returns
};

// Random: of zeros a card draws less power and runs faster.
Tensor random_tensor(const Shape& shape, DType dtype, double scale = 1) {
  static uint64_t seed = 0;
  const Tensor wide = Tensor::empty(shape);
  InitialArgs a;
  a.normal = true, a.scale = static_cast<float>(scale), a.seed = ++seed, a.end = wide.numel();
  a.out = static_cast<float*>(wide.write());
  raw::launch([](Parallel& p, const InitialArgs& args) { kernels(p).initial(p, args); }, a);
  return raw::cast(wide, dtype);
}

constexpr DType kNarrow = DType::kBFloat16;
Tensor narrow_matrix(int64_t rows, int64_t cols) { return random_tensor({rows, cols}, kNarrow, 0.02); }

class Bench {
 public:
  Bench(Stream& stream, bool small) : stream_(stream), small_(small), extent_(small ? 64 : 8192) {}

  // Returns the seconds of one launch, the median of five measurements.
  double seconds_of(const Case& c) {
    std::vector<Launch> sets{c.make()};
    const auto wanted = static_cast<size_t>(static_cast<double>(kCacheBytes) / std::max(c.bytes, 1.0)) + 1;
    while (!small_ && sets.size() < std::min<size_t>(wanted, 16)) sets.push_back(c.make());
    size_t next = 0;
    const auto timed = [&](int64_t count) {
      const auto launch = [&] {
        for (int64_t i = 0; i < count; ++i) sets[next++ % sets.size()]();
      };
      stream_.synchronize();
      if (DeviceQueue* queue = stream_.device_queue().get()) return queue->seconds_of(launch);
      const auto begin = std::chrono::steady_clock::now();
      launch();
      return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    };
    (void)timed(static_cast<int64_t>(sets.size()));  // libraries choose here
    int64_t count = 1;
    double took = timed(count);
    for (; !small_ && took < kLeastSeconds && count < 10'000; took = timed(count))
      count =
          std::max(2 * count, static_cast<int64_t>(kLeastSeconds / std::max(took, 1e-6) * static_cast<double>(count)));
    std::vector<double> all;
    for (int round = 0; round < (small_ ? 1 : 5); ++round) all.push_back(timed(count) / static_cast<double>(count));
    std::sort(all.begin(), all.end());
    return all[all.size() / 2];
  }

  // Square products of random bf16 matrices, and copies within the memory by the queue.
  void measure_limits() {
    const int64_t extent = extent_, bytes = int64_t(1) << (small_ ? 16 : 30);
    const double e = static_cast<double>(extent);
    const Case product{"", 2 * e * e * e, 6 * e * e, [=]() -> Launch {
                         const Tensor a = narrow_matrix(extent, extent), b = narrow_matrix(extent, extent),
                                      c = Tensor::empty({extent, extent}, kNarrow);
                         return [=] { raw::gemm(c, a, b); };
                       }};
    const Case copy{"", 0, 2.0 * static_cast<double>(bytes), [=, this]() -> Launch {
                      const Tensor from = Tensor::zeros({bytes}, DType::kUInt8),
                                   to = Tensor::zeros({bytes}, DType::kUInt8);
                      return [=, this] {
                        if (DeviceQueue* queue = stream_.device_queue().get())
                          queue->copy(to.write(), from.read(), bytes);
                        else std::memcpy(to.write(), from.read(), static_cast<size_t>(bytes));
                      };
                    }};
    flop_rate_ = product.flops / seconds_of(product);
    byte_rate_ = copy.bytes / seconds_of(copy);
  }

  void print_limits() const {
    const Device device = stream_.device();
    const bool gpu = device.type == DeviceType::kCuda;
    std::printf(
        "{\"device\":\"%s\",\"libraries\":\"%s\",\"gemm_extent\":%lld,\"gemm_tflops\":%.4g,\"copy_gbps\":%.4g}\n",
        gpu ? device_backend().properties(device.index).name.c_str() : "cpu",
        gpu ? device_backend().versions().c_str() : "", static_cast<long long>(extent_), flop_rate_ / 1e12,
        byte_rate_ / 1e9);
  }

  void begin_table() const {
    std::printf("floor: %.4g TF/s in products of %lld^3 in bf16, %.4g GB/s in copies (read and written)\n\n",
                flop_rate_ / 1e12, static_cast<long long>(extent_), byte_rate_ / 1e9);
    std::printf(
        "| kernel | exact ms | TF/s | GB/s | floor ms | floor / exact | fast ms |\n|---|---|---|---|---|---|---|\n");
    std::fflush(stdout);
  }

  void row(const Case& c) {
    const double floor = std::max(c.flops / flop_rate_, c.bytes / byte_rate_);
    std::string line = str("| ", c.name, " | ");
    try {
      const double exact = seconds_of(c);
      line +=
          str(number(exact * 1e3), " | ", c.flops > 0 ? number(c.flops / exact / 1e12) : "", " | ",
              number(c.bytes / exact / 1e9), " | ", number(floor * 1e3), " | ", number(100 * floor / exact), "% | ");
      if (DeviceQueue* queue = stream_.device_queue().get()) {
        queue->allow_fast(true);
        const double fast = seconds_of(c);
        queue->allow_fast(false);
        line += number(fast * 1e3);
      }
      ++ran_;
    } catch (const Error& error) {
      if (DeviceQueue* queue = stream_.device_queue().get()) queue->allow_fast(false);
      line += error.what();
      ++failed_;
    }
    std::printf("%s |\n", line.c_str());
    std::fflush(stdout);
  }

  int failed() const { return failed_; }
  int ran() const { return ran_; }

 private:
  static std::string number(double v) {
    char text[32];
    std::snprintf(text, sizeof text, "%.4g", v);
    return text;
  }

  Stream& stream_;
  const bool small_;
  const int64_t extent_;  // of the square products
  double flop_rate_ = 1, byte_rate_ = 1;
  int failed_ = 0, ran_ = 0;
};

struct Model {
  std::string name;
  int64_t batch, time, heads, width, vocabulary, parameters;
  int64_t tokens() const { return batch * time; }
};

// All products of a linear layer of `in` to `out`. `inner`: the one before gelu, whose epilogue it has; `outer`: the
// one behind, whose input gradient has gelu's.
void linear_rows(Bench& bench, const Model& m, const std::string& name, int64_t in, int64_t out, bool bias, bool inner,
                 bool outer) {
  const int64_t n = m.tokens();
  const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(out);
  const auto bytes = [&](double more = 0) { return 2.0 * static_cast<double>(n * in + n * out + in * out) + more; };
  const std::string what = str(m.name, " ", name, ", ", n, " x ", in, " to ", out);
  const auto forward = [=](bool with_bias, bool with_gelu) {
    return [=]() -> Launch {
      Tensor x = narrow_matrix(n, in), w = narrow_matrix(out, in), y = Tensor::empty({n, out}, kNarrow), pre, b;
      if (with_bias) b = random_tensor({out}, kNarrow);
      if (with_gelu) pre = Tensor::empty({n, out}, kNarrow);
      return [=] {
        if (with_gelu) raw::gemm_gelu(y, pre, x, w.transpose(0, 1), b);
        else raw::gemm(y, x, w.transpose(0, 1), b);
      };
    };
  };
  const auto input_gradient = [=](bool with_gelu) {
    return [=]() -> Launch {
      Tensor g = narrow_matrix(n, out), w = narrow_matrix(out, in), dx = Tensor::empty({n, in}, kNarrow), pre;
      if (with_gelu) pre = narrow_matrix(n, in);
      return [=] {
        if (with_gelu) raw::gemm_gelu_backward(dx, g, w, pre);
        else raw::gemm(dx, g, w);
      };
    };
  };
  const auto weight_gradient = [=](bool with_bias) {
    return [=]() -> Launch {
      Tensor g = narrow_matrix(n, out), x = narrow_matrix(n, in), dw = Tensor::empty({out, in}), db;
      if (with_bias) db = Tensor::empty({out});
      return [=] {
        if (with_bias) raw::linear_gradients({dw}, {db}, g, x);
        else raw::gemm(dw, g.transpose(0, 1), x);
      };
    };
  };
  bench.row({what, flops, bytes(), forward(false, false)});
  if (bias) bench.row({what + ", bias", flops, bytes(), forward(true, false)});
  if (inner)
    bench.row({what + ", bias and gelu", flops, bytes(2.0 * static_cast<double>(n * out)), forward(true, true)});
  bench.row({what + ": input gradient", flops, bytes(), input_gradient(false)});
  if (outer)
    bench.row(
        {what + ": input gradient, gelu's", flops, bytes(2.0 * static_cast<double>(n * in)), input_gradient(true)});
  bench.row({what + ": weight gradient", flops, bytes(2.0 * static_cast<double>(in * out)), weight_gradient(false)});
  if (bias)
    bench.row({what + ": weight and bias gradient", flops, bytes(2.0 * static_cast<double>(in * out)),
               weight_gradient(true)});
}

// Forward and backward: by the library, by it under a mask of lengths, and under them by kernels of our own.
enum class AttentionBy { kLibrary, kLibraryMasked, kOurs };
void attention_rows(Bench& bench, const Model& m) {
  const int64_t n = m.tokens(), dim = m.width / m.heads;
  const double forward = 2.0 * static_cast<double>(n) * static_cast<double>(m.time) * static_cast<double>(m.width);
  const auto make = [=](AttentionBy by, bool backward) {
    return [=]() -> Launch {
      Tensor qkv = random_tensor({n, 3 * m.width}, kNarrow), dqkv, y = Tensor::zeros({n, m.width}, kNarrow), dy,
             lse = Tensor::zeros({m.batch, m.heads, m.time}),
             lengths = Tensor::of(std::vector<int32_t>(static_cast<size_t>(m.batch), static_cast<int32_t>(m.time)),
                                  {m.batch});
      AttentionArgs a;
      a.batch = m.batch, a.time = m.time, a.heads = a.kv_heads = m.heads, a.dim = dim, a.dtype = kNarrow;
      a.scale = 1 / std::sqrt(static_cast<double>(dim));
      if (backward) {
        dqkv = Tensor::empty({n, 3 * m.width}, kNarrow), dy = random_tensor({n, m.width}, kNarrow);
        a.dy = dy.write();
      }
      a.unpack(qkv.write(), backward ? dqkv.write() : nullptr);
      a.y = y.write(), a.lse = lse.write();
      if (by != AttentionBy::kLibrary) a.lengths = static_cast<const int32_t*>(lengths.read());
      const auto trust = [by, a] {
        if (const auto& queue = current_stream().device_queue())
          queue->trust_masks(by == AttentionBy::kLibraryMasked ? MaskedAttentions{kind_of(a)} : MaskedAttentions{});
      };
      trust();
      const auto forward_pass = [](Parallel& p, const AttentionArgs& args) { kernels(p).attention(p, args); };
      const auto backward_pass = [](Parallel& p, const AttentionArgs& args) { kernels(p).attention_backward(p, args); };
      if (backward) raw::launch(forward_pass, a);  // the log-sum-exps that it reads
      return [=, held = std::vector<Tensor>{qkv, dqkv, y, dy, lse, lengths}] {
        trust();
        if (backward) raw::launch(backward_pass, a);
        else raw::launch(forward_pass, a);
      };
    };
  };
  for (const auto& [by, name] : {std::pair{AttentionBy::kLibrary, ""},
                                 {AttentionBy::kLibraryMasked, ", masked"},
                                 {AttentionBy::kOurs, ", kernels of our own"}}) {
    const std::string what = str(m.name, " attention, ", m.batch, " x ", m.time, " x ", m.heads, " x ", dim, name);
    bench.row({what, forward, 8.0 * static_cast<double>(n * m.width), make(by, false)});
    bench.row({what + ": gradient", 2.5 * forward, 16.0 * static_cast<double>(n * m.width), make(by, true)});
  }
}

void loss_rows(Bench& bench, const Model& m) {
  const int64_t n = m.tokens(), v = m.vocabulary;
  const auto make = [=](bool one_pass) {
    return [=]() -> Launch {
      Tensor logits = narrow_matrix(n, v), loss = Tensor::empty({n}), lse = Tensor::empty({n});
      std::vector<int32_t> target(static_cast<size_t>(n));
      for (size_t i = 0; i < target.size(); ++i) target[i] = static_cast<int32_t>(static_cast<int64_t>(i) * 7919 % v);
      const Tensor targets = Tensor::of(target, {n});
      RowArgs r;
      r.rows = n, r.cols = v, r.ignored_target = -1;
      if (one_pass) {
        using F = CrossEntropyInOnePassRows;
        r.loss_gradient = 1.0 / static_cast<double>(n);
        r[F::kLogits] = raw::rows_of(logits, v), r[F::kTarget] = raw::one_per_row(targets);
        r[F::kDlogits] = raw::write_rows(logits, v), r[F::kLoss] = raw::write_one_per_row(loss);
      } else {
        using F = CrossEntropyRows;
        r[F::kLogits] = raw::rows_of(logits, v), r[F::kTarget] = raw::one_per_row(targets);
        r[F::kLoss] = raw::write_one_per_row(loss), r[F::kLse] = raw::write_one_per_row(lse);
      }
      return [=, held = std::vector<Tensor>{logits, loss, lse, targets}] {
        raw::row(one_pass ? RowOp::kCrossEntropyInOnePass : RowOp::kCrossEntropy, r);
      };
    };
  };
  const std::string what = str(m.name, " cross-entropy, ", n, " x ", v);
  bench.row({what, 0, 2.0 * static_cast<double>(n * v), make(false)});
  bench.row({what + ", with its gradient", 0, 4.0 * static_cast<double>(n * v), make(true)});
}

void norm_rows(Bench& bench, const Model& m) {
  const int64_t n = m.tokens(), c = m.width;
  struct Operands {
    Tensor x, g, y, w, b, mean, rstd, dw, db;
  };
  const auto operands = [=] {
    Operands o{narrow_matrix(n, c),         narrow_matrix(n, c),         Tensor::empty({n, c}, kNarrow),
               random_tensor({c}, kNarrow), random_tensor({c}, kNarrow), Tensor::full({n}, 0),
               Tensor::full({n}, 1),        Tensor::empty({c}),          Tensor::empty({c})};
    return o;
  };
  const double pass = 2.0 * static_cast<double>(n * c);
  const std::string what = str(m.name, " layer norm, ", n, " x ", c);
  bench.row({what, 0, 2 * pass, [=]() -> Launch {
               const Operands o = operands();
               using F = LayerNormRows;
               RowArgs r;
               r.rows = n, r.cols = c, r.epsilon = 1e-5;
               r[F::kX] = raw::rows_of(o.x, c), r[F::kWeight] = raw::same_row(o.w), r[F::kBias] = raw::same_row(o.b);
               r[F::kY] = raw::write_rows(o.y, c), r[F::kMean] = raw::write_one_per_row(o.mean);
               r[F::kRstd] = raw::write_one_per_row(o.rstd);
               return [o, r] { raw::row(RowOp::kLayerNorm, r); };
             }});
  bench.row({what + ": input gradient", 0, 3 * pass, [=]() -> Launch {
               const Operands o = operands();
               using F = LayerNormBackwardRows;
               RowArgs r;
               r.rows = n, r.cols = c;
               r[F::kG] = raw::rows_of(o.g, c), r[F::kX] = raw::rows_of(o.x, c), r[F::kWeight] = raw::same_row(o.w);
               r[F::kMean] = raw::one_per_row(o.mean), r[F::kRstd] = raw::one_per_row(o.rstd);
               r[F::kDx] = raw::write_rows(o.y, c);
               return [o, r] { raw::row(RowOp::kLayerNormBackward, r); };
             }});
  bench.row({what + ": weight and bias gradient", 0, 2 * pass, [=]() -> Launch {
               const Operands o = operands();
               NormColumnsArgs a;
               a.rows = n, a.cols = c, a.g = o.g.read(), a.x = o.x.read(), a.g_dtype = a.x_dtype = kNarrow;
               a.mean = o.mean.read(), a.rstd = o.rstd.read(), a.dweight = o.dw.write(), a.dbias = o.db.write();
               return [o, a] {
                 raw::launch([](Parallel& p, const NormColumnsArgs& args) { kernels(p).norm_columns(p, args); }, a);
               };
             }});
  bench.row({str(m.name, " column sums, ", n, " x ", 4 * c), 0, 4 * pass, [=]() -> Launch {
               const Tensor in = narrow_matrix(n, 4 * c), out = Tensor::empty({4 * c});
               ColumnArgs a;
               a.rows = n, a.cols = 4 * c, a.in = in.read(), a.in_dtype = kNarrow, a.out = out.write();
               return [in, out, a] {
                 raw::launch([](Parallel& p, const ColumnArgs& args) { kernels(p).column_sum(p, args); }, a);
               };
             }});
}

// Over one buffer of all parameters: master, two moments, gradient.
void update_row(Bench& bench, const Model& m) {
  const int64_t n = m.parameters;
  bench.row(
      {str(m.name, " AdamW, ", n), 0, 28.0 * static_cast<double>(n), [=]() -> Launch {
         const auto of = [&](double scale) { return random_tensor({n}, DType::kFloat32, scale); };
         const Tensor master = of(0.02), first = of(1e-3), second = Tensor::full({n}, 1e-6), gradient = of(1e-3),
                      control = Tensor::of(std::vector<float>{1e-4f, 1, 0, 1, 1, 0, 0, 0}, {UpdateControl::kCount});
         PointwiseArgs a = raw::pointwise_args({master, first, second}, {master, first, second, gradient});
         a.control = static_cast<const float*>(control.read());
         for (double& s : a.scalars) s = 0.9;
         return [=, held = std::vector<Tensor>{master, first, second, gradient, control}] {
           raw::launch([](Parallel& p, const PointwiseArgs& args) { kernels(p).update(p, "adamw", {&args, 1}); }, a);
         };
       }});
}

void rows_of_model(Bench& bench, const Model& m) {
  const int64_t c = m.width;
  linear_rows(bench, m, "queries, keys, values", c, 3 * c, true, false, false);
  linear_rows(bench, m, "projection", c, c, true, false, false);
  linear_rows(bench, m, "up", c, 4 * c, true, true, false);
  linear_rows(bench, m, "down", 4 * c, c, true, false, true);
  linear_rows(bench, m, "head", c, m.vocabulary, false, false, false);
  attention_rows(bench, m);
  loss_rows(bench, m);
  norm_rows(bench, m);
  update_row(bench, m);
}

// Of the libraries' choices those that say that they have nothing for a shape (dnn.cpp, blas.cpp): what GPT-2's steps
// do then is many times slower. Rows by kernels of our own are asked for, and not refused; of gradients under a mask it
// is known that sm_100 has none.
std::vector<std::string> refused_in(const std::string& choices, const std::string& architecture) {
  const auto is_known = [&](const std::string& line) {
    return architecture.starts_with("sm_10") && line.find("gradient") != line.npos &&
           line.find(", masked") != line.npos;
  };
  std::vector<std::string> out;
  std::istringstream lines(choices);
  for (std::string line; std::getline(lines, line);)
    if ((line.find("as cuDNN has none") != line.npos || line.find(": none: ") != line.npos) && !is_known(line))
      out.push_back(line);
  return out;
}

int run(Device device, bool small, bool only_limits) {
  Stream stream(device, Stream::Mode::kInline, available_cores());
  WithStream with(stream);
  Bench bench(stream, small);
  bench.measure_limits();
  if (only_limits) {
    bench.print_limits();
    return 0;
  }
  if (device.type == DeviceType::kCuda)
    std::printf("on %s, %s, %s\n", device_backend().properties(device.index).name.c_str(),
                device_backend().driver().c_str(), device_backend().versions().c_str());
  bench.begin_table();
  if (small) {
    rows_of_model(bench, {"tiny", 2, 16, 2, 32, 64, 4096});
  } else {
    rows_of_model(bench, {"124m", 64, 1024, 12, 768, 50304, 124'475'904});
    rows_of_model(bench, {"1558m", 16, 1024, 25, 1600, 50304, 1'557'686'400});
  }
  std::printf("\n%d kernels timed, %d failed\n", bench.ran(), bench.failed());
  if (device.type != DeviceType::kCuda) return bench.failed() == 0 ? 0 : 1;
  const std::string choices = device_backend().choices();
  std::printf("\nchoices of the libraries:\n%s", choices.c_str());
  const std::vector<std::string> refused = refused_in(choices, device_backend().properties(device.index).architecture);
  for (const std::string& line : refused) std::printf("refused: %s\n", line.c_str());
  return bench.failed() == 0 && refused.empty() ? 0 : 1;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  using namespace lockstep;
  const std::vector<std::string> given(argv + 1, argv + argc);
  const bool only_limits = !given.empty() && given[0] == "limits";
  size_t next = only_limits ? 1 : 0;
  const std::string device = next < given.size() ? given[next++] : "cuda";
  const bool small = next < given.size() && given[next] == "small";
  if (next + (small ? 1 : 0) != given.size() || (device != "cuda" && device != "cpu")) {
    std::fprintf(stderr, "usage: gpu_kernels [limits] [cuda|cpu] [small]\n");
    return static_cast<int>(ExitCode::kUsage);
  }
  try {
    return run(device == "cuda" ? Device{DeviceType::kCuda, 0} : Device{}, small, only_limits);
  } catch (const Error& e) {
    std::fprintf(stderr, "gpu_kernels: %s\n", e.what());
    return static_cast<int>(e.code());
  }
}
