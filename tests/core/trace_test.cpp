#include "core/base/trace.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "core/autograd/node.h"
#include "core/kernels/cost.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"

namespace lockstep::trace_test {
namespace {

Span numbered(int64_t n) {
  Span s;
  s.name = n % 2 ? "odd" : "even";
  s.backward = n % 2 != 0;
  s.rank = static_cast<int>(n % 1000);
  s.begin_ns = s.self_ns = s.bytes = n;
  s.end_ns = n + 1;
  s.flops = static_cast<double>(n);
  return s;
}
void expect_whole(const Span& s) {
  const Span as_written = numbered(s.begin_ns);
  EXPECT_STREQ(s.name, as_written.name);
  EXPECT_EQ(s.backward, as_written.backward);
  EXPECT_EQ(s.rank, as_written.rank);
  EXPECT_EQ(s.end_ns, as_written.end_ns);
  EXPECT_EQ(s.self_ns, as_written.self_ns);
  EXPECT_EQ(s.bytes, as_written.bytes);
  EXPECT_EQ(s.flops, as_written.flops);
}

// A trace that is on within a scope.
struct Tracing {
  Tracing() { start_trace(); }
  ~Tracing() { stop_trace(); }
};

std::vector<std::string> names(const std::vector<Span>& spans) {
  std::vector<std::string> out;
  for (const Span& s : spans) out.push_back(str(s.name, s.backward ? " backward" : ""));
  return out;
}

TEST(SpanRing, KeepsTheNewestAndCountsWhatIsLost) {
  SpanRing ring(8, 3);
  std::vector<Span> out;
  EXPECT_EQ(ring.read(out), 0);
  for (int64_t n = 0; n < 5; ++n) ring.write(numbered(n));
  EXPECT_EQ(ring.read(out), 0);
  ASSERT_EQ(out.size(), 5u);
  for (int64_t n = 5; n < 25; ++n) ring.write(numbered(n));
  EXPECT_EQ(ring.read(out), 12);
  ASSERT_EQ(out.size(), 13u);
  for (size_t i = 0; i < out.size(); ++i) {
    EXPECT_EQ(out[i].begin_ns, static_cast<int64_t>(i < 5 ? i : i + 12));
    EXPECT_EQ(out[i].thread, 3);
    expect_whole(out[i]);
  }
  EXPECT_EQ(ring.read(out), 0);
  EXPECT_EQ(out.size(), 13u);
}

// Whatever the reader gets while the writer comes round again is one span, not parts of two.
TEST(SpanRing, IsReadWhileItIsWritten) {
  constexpr int64_t kWritten = 200000;
  SpanRing ring(16);
  std::thread writer([&] {
    for (int64_t n = 0; n < kWritten; ++n) ring.write(numbered(n));
  });
  std::vector<Span> out;
  int64_t lost = 0;
  while (static_cast<int64_t>(out.size()) + lost < kWritten) lost += ring.read(out);
  writer.join();
  ASSERT_FALSE(out.empty());
  EXPECT_EQ(static_cast<int64_t>(out.size()) + lost, kWritten);
  EXPECT_EQ(out.back().begin_ns, kWritten - 1);
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(i == 0 || out[i - 1].begin_ns < out[i].begin_ns);
    expect_whole(out[i]);
  }
}

TEST(Trace, RecordsNothingWhileItIsOff) {
  { Tracing on; }
  { TraceSpan span("off"); }
  const Tensor t = Tensor::zeros({4});
  EXPECT_TRUE(take_trace().spans.empty());
  // Begun before the start: it would count time that nobody asked for.
  {
    TraceSpan span("too early");
    start_trace();
  }
  EXPECT_TRUE(take_trace().spans.empty());
  { TraceSpan span("on"); }
  stop_trace();
  EXPECT_EQ(names(take_trace().spans), std::vector<std::string>{"on"});
  { Tracing on; }
  EXPECT_TRUE(take_trace().spans.empty());
}

TEST(Trace, TellsThreadsApart) {
  Tracing on;
  constexpr int kThreads = 4, kSpans = 300;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([t] {
      trace_owner.rank = t;
      for (int i = 0; i < kSpans; ++i) TraceSpan span("work", t);
    });
  for (std::thread& t : threads) t.join();
  const Trace trace = take_trace();
  EXPECT_EQ(trace.lost, 0);
  ASSERT_EQ(trace.spans.size(), static_cast<size_t>(kThreads * kSpans));
  int thread_of[kThreads] = {-1, -1, -1, -1};
  int64_t before = 0;
  for (const Span& s : trace.spans) {
    EXPECT_EQ(s.bytes, s.rank);
    if (thread_of[s.rank] < 0) thread_of[s.rank] = s.thread;
    EXPECT_EQ(s.thread, thread_of[s.rank]);
    EXPECT_LE(before, s.begin_ns);
    EXPECT_LE(s.begin_ns, s.end_ns);
    before = s.begin_ns;
  }
  std::sort(std::begin(thread_of), std::end(thread_of));
  EXPECT_EQ(std::unique(std::begin(thread_of), std::end(thread_of)), std::end(thread_of));
}

TEST(Trace, ASpansOwnTimeLeavesOutWhatIsWithinIt) {
  Tracing on;
  {
    TraceSpan outer("outer");
    for (int i = 0; i < 2; ++i) {
      TraceSpan middle("middle");
      TraceSpan inner("inner");
      inner.add_bytes(7);
    }
  }
  const std::vector<Span> spans = take_trace().spans;
  ASSERT_EQ(names(spans), (std::vector<std::string>{"outer", "middle", "inner", "middle", "inner"}));
  auto time = [&](size_t i) { return spans[i].end_ns - spans[i].begin_ns; };
  EXPECT_EQ(spans[0].self_ns, time(0) - time(1) - time(3));
  EXPECT_EQ(spans[1].self_ns, time(1) - time(2));
  EXPECT_EQ(spans[2].self_ns, time(2));
  EXPECT_EQ(spans[2].bytes, 7);
}

// On its own thread, and on one that runs later under the name given when the work was enqueued.
TEST(Trace, NamesTasksByTheirOperation) {
  for (const Stream::Mode mode : {Stream::Mode::kInline, Stream::Mode::kThread}) {
    Stream stream({mode == Stream::Mode::kThread ? DeviceType::kAsyncCpu : DeviceType::kCpu, 0}, mode);
    WithStream with(stream);
    Tensor x = Tensor::full({6, 8}, 0.5), w = Tensor::full({5, 8}, 0.25);
    require_grad(w);
    stream.synchronize();
    Tracing on;
    backward(sum(relu(linear(x, w))));
    raw::fill(x, 1);
    stream.synchronize();
    std::vector<Span> spans = take_trace().spans;
    std::erase_if(spans, [](const Span& s) { return s.bytes == 0; });  // waits, and the freeing of memory
    EXPECT_EQ(names(spans), (std::vector<std::string>{"linear", "relu", "sum", "fill", "sum backward", "relu backward",
                                                      "linear backward", "fill"}));
    EXPECT_EQ(spans[0].flops, 2 * 6 * 8 * 5);
    EXPECT_EQ(spans[0].bytes, 4 * (6 * 8 + 5 * 8 + 6 * 5));
    EXPECT_EQ(spans[1].bytes, 4 * 2 * 6 * 5);
    EXPECT_EQ(spans[6].flops, 2 * 6 * 8 * 5);  // x needs no gradient
    for (const Span& s : spans) EXPECT_EQ(s.thread == trace_thread(), mode == Stream::Mode::kInline) << s.name;
  }
}

TEST(Cost, CountsOperandsOnceAndProductsOperations) {
  float some = 0;
  PointwiseArgs p;  // [2, 3] of one row of 3
  p.numel = 6, p.dims = 2, p.ins = p.outs = 1;
  p.sizes[0] = 2, p.sizes[1] = 3;
  p.in[0] = {&some, DType::kFloat32, {0, 1}};
  p.out[0] = {&some, DType::kBFloat16, {3, 1}};
  EXPECT_EQ(cost_of(PointwiseOp::kCopy, p).bytes, 3 * 4 + 6 * 2);

  AttentionArgs a;
  a.batch = 2, a.time = 3, a.heads = a.kv_heads = 4, a.dim = 5;
  a.unpack(&some, nullptr);
  a.y = &some;
  EXPECT_EQ(cost_of(a).flops, 2.0 * 2 * (2 * 4 * 6) * 5);
  EXPECT_EQ(cost_of(a).bytes, 4 * 4 * (2 * 3 * 4 * 5));
  a.window = 2, a.kv_heads = 2;
  EXPECT_EQ(cost_of(a).flops, 2.0 * 2 * (2 * 4 * 5) * 5);
  EXPECT_EQ(cost_of(a).bytes, 4 * 3 * (2 * 3 * 4 * 5));
  a.window = 0, a.kv_heads = 4;
  a.unpack(&some, &some);
  a.dy = &some;
  EXPECT_EQ(cost_of(a).flops, 2.0 * 5 * (2 * 4 * 6) * 5);

  RowArgs r;
  r.rows = 4, r.cols = 6;
  r[LayerNormRows::kX] = {&some, DType::kFloat32, 6};
  r[LayerNormRows::kWeight] = {&some, DType::kFloat32, 0};
  r[LayerNormRows::kY] = {&some, DType::kFloat32, 6};
  r[LayerNormRows::kMean] = {&some, DType::kFloat32, 1};
  EXPECT_EQ(cost_of(RowOp::kLayerNorm, r).bytes, 4 * (24 + 6 + 24 + 4));

  ConvArgs c;
  c.images = 2, c.height = c.width = 4, c.in_channels = 3, c.out_height = c.out_width = 2, c.out_channels = 5;
  c.kernel_h = c.kernel_w = 3;
  EXPECT_EQ(cost_of(c).flops, 2.0 * (2 * 2 * 2) * (3 * 3 * 3) * 5);
}

}  // namespace
}  // namespace lockstep::trace_test
