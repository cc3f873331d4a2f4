// A GPU's streams, events and memory, on the fake GPU: order between streams of every kind, blocks that
// wait for the streams that used them, and what is said when memory ends.
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <optional>
#include <thread>

#include "core/device/allocator.h"
#include "core/device/graph.h"
#include "core/ops/ops.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/files.h"

namespace lockstep::gpu_test {
namespace {

using testing::fake_gpu;

Stream gpu_stream(const testing::FakeGpuLimits& limits = {}) {
  return Stream(fake_gpu(0, limits), Stream::Mode::kInline);
}

// Keeps a queue busy, so that what comes after it is far behind the host.
void delay(Stream& stream, int milliseconds) {
  stream.enqueue([&](Parallel& p) {
    testing::fake_gpu_enqueue(static_cast<DeviceQueue&>(p),
                              [=] { std::this_thread::sleep_for(std::chrono::milliseconds(milliseconds)); });
  });
}

// Holds a queue up until it is opened. A host that waits for the queue before that is held up for a minute, so that the
// test fails and does not hang.
class Gate {
 public:
  explicit Gate(Stream& stream) {
    stream.enqueue([&](Parallel& p) {
      testing::fake_gpu_enqueue(static_cast<DeviceQueue&>(p),
                                [opened = opens_.get_future().share()] { opened.wait_for(Seconds(60)); });
    });
  }
  void open() { opens_.set_value(); }

 private:
  std::promise<void> opens_;  // the queue does not wait for one that is gone
};

TEST(GpuStream, RunsBehindTheHostAndEventsTellWhen) {
  Stream stream = gpu_stream();
  EXPECT_EQ(stream.mode(), Stream::Mode::kQueue);
  Gate gate(stream);
  const Event event = stream.record();
  EXPECT_FALSE(event.done());
  EXPECT_FALSE(event.synchronize(Seconds(0.01)));
  gate.open();
  EXPECT_TRUE(event.synchronize());
  EXPECT_TRUE(event.done());
  EXPECT_TRUE(event.synchronize(Seconds(0)));
}

TEST(GpuStream, AnotherStreamWaitsInItsOwnOrderNotTheHost) {
  Stream producer = gpu_stream(), consumer(fake_gpu(), Stream::Mode::kInline);
  Tensor value;
  std::optional<Gate> gate;
  {
    WithStream with(producer);
    value = Tensor::zeros({1000});
    gate.emplace(producer);
    raw::fill(value, 3);
  }
  const Event filled = producer.record();
  consumer.wait(filled);
  WithStream with(consumer);
  const Tensor twice = Tensor::empty({1000});
  raw::pointwise(PointwiseOp::kAffine, {twice}, {value}, 2);
  EXPECT_FALSE(filled.done()) << "the host is ahead";
  gate->open();
  EXPECT_EQ(twice.to_vector(), std::vector<double>(1000, 6));
}

TEST(GpuStream, AndThreadsWaitForEachOther) {
  Stream gpu = gpu_stream(), thread(Device{}, Stream::Mode::kThread), host(Device{}, Stream::Mode::kInline);
  std::atomic<int> seen{0};
  delay(gpu, 50);
  gpu.enqueue([&](Parallel& p) { testing::fake_gpu_enqueue(static_cast<DeviceQueue&>(p), [&] { seen = 1; }); });
  int by_thread = -1;
  thread.wait(gpu.record());
  thread.enqueue([&](Parallel&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    by_thread = seen.exchange(2);
  });
  gpu.wait(thread.record());
  int by_gpu = -1;
  gpu.enqueue([&](Parallel& p) { testing::fake_gpu_enqueue(static_cast<DeviceQueue&>(p), [&] { by_gpu = seen; }); });
  host.wait(gpu.record());
  EXPECT_EQ(by_thread, 1);
  EXPECT_EQ(by_gpu, 2);
}

TEST(GpuStream, AThreadWaitsForThreadsAndHandsItsKernelsOn) {
  Stream compute = gpu_stream(), thread(Device{}, Stream::Mode::kThread), merging(fake_gpu(), Stream::Mode::kThread);
  WithStream with(compute);
  const Tensor value = Tensor::full({1000}, 3), twice = Tensor::empty({1000});
  std::promise<void> gate;
  thread.enqueue([opened = gate.get_future().share()](Parallel&) { opened.wait(); });
  merging.wait(compute.record());
  merging.wait(thread.record());
  {
    WithStream there(merging);
    raw::pointwise(PointwiseOp::kAffine, {twice}, {value}, 2);
  }
  const Event merged = merging.record();
  EXPECT_FALSE(merged.done()) << "and the host came here";
  gate.set_value();
  compute.wait(merged);
  EXPECT_EQ(twice.to_vector(), std::vector<double>(1000, 6));
}

TEST(GpuStream, OfWhichTheWorkFailedTellsAllWhoWaitedForIt) {
  Stream gpu = gpu_stream(), follower(fake_gpu(), Stream::Mode::kInline);
  follower.wait(gpu.record());
  const Event after = follower.record();
  gpu.fail(std::make_exception_ptr(Error(ExitCode::kRankLost, "lost")));
  test::expect_error(ExitCode::kRankLost, {"lost"}, [&] { after.synchronize(); });
  test::expect_error(ExitCode::kRankLost, {"lost"}, [&] { gpu.synchronize(); });
}

TEST(GpuStream, TellsOfBadDataWhenTheHostNextWaits) {
  Stream stream = gpu_stream();
  WithStream with(stream);
  const Tensor y = embedding(Tensor::zeros({4, 2}), Tensor::of(std::vector<int32_t>{1, 4}, {2}));
  test::expect_error(ExitCode::kBadData, {"index 4 at position 1", "4 rows"}, [&] { y.to_vector(); });
}

// To pin much takes long: others take and free what is there meanwhile.
TEST(GpuMemory, PinningHoldsNobodyUp) {
  const Device pinned{DeviceType::kPinned, 0};
  Stream stream = gpu_stream();
  free_bytes(allocate_bytes(1000, pinned), pinned);  // so that a segment is there
  std::promise<void> begun, others_done;
  const auto done = others_done.get_future().share();
  std::atomic<bool> held_up{false};
  fake_gpu(0, {.pinning = [&] {
             begun.set_value();
             held_up = done.wait_for(Seconds(120)) != std::future_status::ready;
           }});
  std::thread slow([&] { free_bytes(allocate_bytes(int64_t(100) << 20, pinned), pinned); });
  begun.get_future().wait();
  free_bytes(allocate_bytes(1000, pinned), pinned);
  EXPECT_GE(allocator_stats(pinned).bytes_reserved, 1000);
  others_done.set_value();
  slow.join();
  EXPECT_FALSE(held_up);
  fake_gpu();
}

TEST(GpuMemory, WhatALibraryGivesIsCountedAndHasRoomMadeForIt) {
  const Device device = fake_gpu(3, {.memory_bytes = int64_t(256) << 20});
  Stream stream(device, Stream::Mode::kInline);
  WithStream with(stream);
  free_bytes(allocate_bytes(int64_t(200) << 20, device), device);  // kept by the allocator
  const AllocatorStats before = allocator_stats(device);
  EXPECT_GE(before.bytes_reserved, int64_t(200) << 20);
  constexpr int64_t kBytes = int64_t(128) << 20;
  int64_t wanted = kBytes;
  int asked = 0;
  const auto library = [&] {
    ++asked;
    return device_backend().allocate(device.index, wanted);
  };
  void* data = take_from_library(library, kBytes, device, MemoryUse::kGradients);
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(asked, 2) << "there was no room at first";
  EXPECT_EQ(allocator_stats(device).in_use(MemoryUse::kGradients), kBytes);
  EXPECT_EQ(allocator_stats(device).bytes_reserved, kBytes);
  wanted = kBytes * 2;
  EXPECT_EQ(take_from_library(library, wanted, device, MemoryUse::kGradients), nullptr);
  EXPECT_EQ(allocator_stats(device).in_use(MemoryUse::kGradients), kBytes);
  forget_bytes(data, device);
  device_backend().release(device.index, data);
  EXPECT_EQ(allocator_stats(device).bytes_in_use, before.bytes_in_use);
  EXPECT_EQ(allocator_stats(device).bytes_reserved, 0);
  fake_gpu();
}

TEST(GpuMemory, TheHostMayNotLook) {
  Stream stream = gpu_stream();
  WithStream with(stream);
  const Tensor t = Tensor::full({8}, 2);
  EXPECT_EQ(to_text(t), "fp32[8] on cuda:0");
  EXPECT_THROW(t.values<float>(), Error);
  EXPECT_EQ(raw::to_host(t).values<float>()[7], 2);
  EXPECT_EQ(t.slice(0, 2, 3).item(), 2);
}

TEST(GpuMemory, CopiesConvertAndCrossEveryBorder) {
  Stream stream = gpu_stream();
  WithStream with(stream);
  Tensor plain = Tensor::unallocated({3, 4}, DType::kFloat64, Device{});
  plain.allocate();
  for (int i = 0; i < 12; ++i) static_cast<double*>(plain.write())[i] = i;
  const Tensor gpu = Tensor::empty({3, 4}, DType::kBFloat16);
  raw::copy(gpu, plain);
  raw::copy(plain, gpu.slice(0, 1, 2).expand({3, 4}));
  EXPECT_EQ(plain.to_vector(), (std::vector<double>{4, 5, 6, 7, 4, 5, 6, 7, 4, 5, 6, 7}));
}

TEST(GpuMemory, ABlockOfOneStreamIsNotTakenWhileAnotherUsesIt) {
  Stream compute = gpu_stream(), other(fake_gpu(), Stream::Mode::kInline);
  WithStream with(compute);
  Tensor first = Tensor::full({1 << 16}, 1);
  const void* place = first.read();
  const Tensor copy = Tensor::empty({1 << 16});
  std::optional<Gate> gate;
  {
    WithStream there(other);
    other.wait(compute.record());
    gate.emplace(other);
    raw::copy(copy, first);
    first = Tensor();  // dropped while the other stream has not come to it
  }
  const Tensor next = Tensor::full({1 << 16}, 2);
  EXPECT_NE(next.read(), place);
  gate->open();
  other.synchronize();
  EXPECT_EQ(copy.slice(0, 0, 1).item(), 1);
  const auto segments = [] { return allocator_stats(fake_gpu()).system_allocations; };
  const int64_t before = segments();
  std::vector<Tensor> later;
  const auto taken = [&] {
    return !later.empty() && later.back().read() <= place &&
           place < static_cast<const char*>(later.back().read()) + later.back().numel() * 4;
  };
  while (!taken() && segments() == before) later.push_back(Tensor::empty({1 << 16}));
  EXPECT_TRUE(taken()) << "once it has, it is taken before more memory is";
}

TEST(GpuMemory, ScratchIsNotTakenFromWhatAnotherStreamFreed) {
  Stream stream = gpu_stream(), other(fake_gpu(), Stream::Mode::kInline), cpu(Device{}, Stream::Mode::kInline);
  const auto take = [&] { return allocate_scratch(1000, *stream.device_queue(), stream.device()); };
  const int64_t before = allocator_stats(stream.device()).in_use(MemoryUse::kScratch);
  free_bytes(take(), stream.device());
  for (Stream* current : {&stream, &cpu}) {
    WithStream with(*current);
    void* data = take();
    EXPECT_EQ(allocator_stats(stream.device()).in_use(MemoryUse::kScratch) - before, 1024);
    free_bytes(data, stream.device());
  }
  WithStream with(other);
  test::expect_error(ExitCode::kInternal, {"scratch memory", "while another one is current"}, [&] { take(); });
}

TEST(GpuMemory, PinnedBlocksWaitForTheCopyThatReadsThem) {
  Stream stream = gpu_stream();
  WithStream with(stream);
  const Tensor gpu = Tensor::empty({1000});
  delay(stream, 50);
  auto fill = [&](float value) {
    Tensor host = Tensor::unallocated({1000}, DType::kFloat32, host_memory_of(gpu.device()));
    host.allocate();
    std::fill_n(static_cast<float*>(host.write()), 1000, value);
    return host;
  };
  raw::copy(gpu, fill(1));
  const Tensor other = fill(2);
  EXPECT_EQ(gpu.to_vector(), std::vector<double>(1000, 1));
}

TEST(GpuMemory, IsTakenFromOtherStreamsWhereThereIsNoMore) {
  const int64_t all = int64_t(256) << 20;
  fake_gpu(3, {.memory_bytes = all});
  Stream one({DeviceType::kCuda, 3}, Stream::Mode::kInline), two({DeviceType::kCuda, 3}, Stream::Mode::kInline);
  {
    WithStream with(one);
    Tensor::zeros({all / 8});
  }
  WithStream with(two);
  const Tensor large = Tensor::full({3 * (all / 16)}, 4);  // 3/4 of all
  EXPECT_EQ(large.slice(0, 0, 1).item(), 4);
}

TEST(GpuMemory, ItsEndNamesWhoAskedWhatHoldsTheRestAndWhatIsFree) {
  fake_gpu(2, {.memory_bytes = int64_t(128) << 20});
  Stream stream({DeviceType::kCuda, 2}, Stream::Mode::kInline);
  WithStream with(stream);
  WithMemoryFor named("blocks.3");
  Tensor moments, activations = Tensor::empty({1000});
  {
    WithMemoryUse use(MemoryUse::kMoments);
    moments = Tensor::empty({1 << 24});
  }
  test::expect_error(ExitCode::kDevice,
                     {"out of memory on cuda:2: 100000000 bytes asked for (activations of blocks.3)",
                      "(moments 67108864, activations 4096), by module moments 100% (blocks.3 100%)", "the GPU has",
                      "of 134217728 bytes free"},
                     [] { Tensor::empty({25000000}); });
  EXPECT_EQ(Tensor::full({10}, 1).to_vector(), std::vector<double>(10, 1)) << "and work goes on";
}

TEST(GpuTrace, HasTheDevicesOwnTimesOnATrackOfTheStream) {
  Stream stream = gpu_stream();
  WithStream with(stream);
  Tensor x = Tensor::full({1 << 20}, 1), y = Tensor::empty({1 << 20});
  for (int trace = 0; trace < 2; ++trace) {
    start_trace();
    const int64_t begun = trace_now_ns();
    {
      const TraceModule module("blocks.0");
      const TraceOp op("add");
      raw::add(y, x, x);
      raw::add(y, y, x);
    }
    stream.synchronize();
    const int64_t ended = trace_now_ns();
    stop_trace();
    std::vector<Span> on_device, on_host;
    for (const Span& s : take_trace().spans)
      if (std::string_view(s.name) == "add") (trace_track_name(s.thread) ? on_device : on_host).push_back(s);
    ASSERT_EQ(on_device.size(), 2u);
    ASSERT_GE(on_host.size(), 2u) << "launching it takes the host time, too";
    // The device notes its time between two looks at the host's clock, which are no further apart than these two.
    const int64_t uncertain = std::max<int64_t>(50'000'000, (ended - begun) / 2 + 1);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_STREQ(on_device[i].module, "blocks.0");
      EXPECT_GT(on_device[i].bytes, 0);
      EXPECT_GT(on_device[i].end_ns, on_device[i].begin_ns);
      EXPECT_EQ(on_device[i].self_ns, on_device[i].end_ns - on_device[i].begin_ns);
      EXPECT_GE(on_device[i].begin_ns, begun - uncertain) << "the clocks are aligned";
      EXPECT_LE(on_device[i].end_ns, ended + uncertain);
    }
    EXPECT_STREQ(trace_track_name(on_device[0].thread), "GPU stream");
    EXPECT_GE(on_device[1].begin_ns, on_device[0].end_ns);
  }
}

TEST(GpuTrace, RecordedWorkIsOneTask) {
  Stream stream = gpu_stream();
  WithStream with(stream);
  Tensor x = Tensor::full({1 << 16}, 1), y = Tensor::empty({1 << 16});
  start_trace();
  StreamGraph graph(stream);
  graph.record([&] { raw::add(y, x, x); });  // the first work of the stream that is traced
  graph.launch();
  stream.synchronize();
  stop_trace();
  std::vector<std::string> on_device;
  for (const Span& s : take_trace().spans)
    if (trace_track_name(s.thread)) on_device.emplace_back(s.name);
  EXPECT_EQ(on_device, std::vector<std::string>{"recorded step"});
  EXPECT_EQ(y.to_vector()[0], 2);
}

TEST(GpuGraph, RunsAgainOnWhatIsThereThen) {
  Stream stream = gpu_stream(), side(fake_gpu(), Stream::Mode::kInline);
  WithStream with(stream);
  Tensor x = Tensor::of(std::vector<float>{1, 2, 3}, {3}), w = Tensor::full({3}, 2), loss;
  require_grad(w);
  StreamGraph graph(stream);
  graph.record([&] {
    loss = sum(mul(x, w));
    clear_grad(w);
    backward(loss);
    side.wait(stream.record());
    {
      WithStream there(side);
      raw::pointwise(PointwiseOp::kAffine, {loss}, {loss}, 10);
    }
    stream.wait(side.record());
  });
  const Tensor gradient = grad_of(w);
  for (float value : {1.0f, 5.0f}) {
    raw::fill(x, value);
    graph.launch();
    const Tensor stranger = Tensor::full({1000}, 7);  // takes no block that the graph uses
    EXPECT_EQ(loss.item(), 60 * value);
    EXPECT_EQ(gradient.to_vector(), std::vector<double>(3, value));
  }
}

TEST(GpuGraph, IsRecordedWithWhatOthersCachedBeforeAndReturnsNothingMeanwhile) {
  constexpr int64_t kAll = int64_t(128) << 20, kMost = int64_t(100) << 20;
  const Device gpu = fake_gpu(3, {.memory_bytes = kAll});
  Stream stream(gpu, Stream::Mode::kInline), other(gpu, Stream::Mode::kInline);
  WithStream with(stream);
  Tensor::empty({kMost}, DType::kUInt8);  // kept by the allocator
  stream.synchronize();
  const auto cache_of_another_thread = [&] {
    std::thread([&] {
      WithStream there(other);
      Tensor::empty({kMost}, DType::kUInt8);
    }).join();
  };
  Tensor kept;
  {
    StreamGraph graph(stream);
    graph.record([&] {
      EXPECT_EQ(device_backend().free_memory(3), kAll) << "returned before";
      kept = Tensor::empty({kMost}, DType::kUInt8);
    });
    kept = Tensor();
  }
  StreamGraph graph(stream);
  EXPECT_THROW(graph.record([&] {
    cache_of_another_thread();
    kept = Tensor::empty({kMost}, DType::kUInt8);
  }),
               OutOfMemory);
}

TEST(GpuGraph, RefusesWhatWouldNotBeTheSameAgain) {
  Stream stream = gpu_stream();
  WithStream with(stream);
  const Tensor x = Tensor::full({2, 3}, 2);
  StreamGraph graph(stream);
  test::expect_error(ExitCode::kConfig, {"dropout", "graph: false"}, [&] {
    graph.record([&] {
      WithRandom random({1, 1, std::make_shared<std::vector<int64_t>>(2)});
      dropout(x, 0.5, 1);
    });
  });
  EXPECT_FALSE(graph.recorded());
  EXPECT_EQ(sum(x).item(), 12) << "and the stream goes on";
}

TEST(Gpu, IsMissingInOneClearLine) {
  fake_gpu();
  test::expect_error(ExitCode::kDevice, {"there is no GPU 7", "4 are there"}, [] {
    Stream({DeviceType::kCuda, 7}, Stream::Mode::kInline);
  });
}

}  // namespace
}  // namespace lockstep::gpu_test
