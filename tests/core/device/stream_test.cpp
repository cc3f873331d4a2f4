// Streams and events: order, what an event orders, errors, deadlines; and that the asynchronous device shows a missing
// event.
#include "core/device/stream.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "core/base/error.h"
#include "core/tensor/raw_ops.h"

namespace lockstep::stream_test {
namespace {

using std::chrono::milliseconds;
constexpr Device kAsync{DeviceType::kAsyncCpu};

TEST(Stream, InlineRunsAtOnceOnTheCallersThread) {
  Stream s({}, Stream::Mode::kInline);
  std::thread::id where;
  s.enqueue([&](Parallel&) { where = std::this_thread::get_id(); });
  EXPECT_EQ(where, std::this_thread::get_id());
  EXPECT_TRUE(s.record().done());
  EXPECT_THROW(s.enqueue([](Parallel&) { throw Error(ExitCode::kBadData, "now"); }), Error) << "at its own call";
}

TEST(Stream, ThreadedRunsInOrderOffTheCallersThread) {
  std::vector<int> order;
  {
    Stream s(kAsync, Stream::Mode::kThread, 2);
    EXPECT_EQ(s.threads(), 2);
    for (int i = 0; i < 1000; ++i)
      s.enqueue([&, i, host = std::this_thread::get_id()](Parallel& p) {
        EXPECT_NE(std::this_thread::get_id(), host);
        EXPECT_EQ(p.threads(), 2);
        order.push_back(i);
      });
  }  // the destructor finishes what was enqueued
  ASSERT_EQ(order.size(), 1000u);
  for (int i = 0; i < 1000; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
}

TEST(Event, HappensAfterWhatWasEnqueuedBefore) {
  Stream s(kAsync, Stream::Mode::kThread);
  std::atomic<bool> go{false}, ran{false};
  s.enqueue([&](Parallel&) {
    while (!go) std::this_thread::yield();
    ran = true;
  });
  Event e = s.record();
  EXPECT_FALSE(e.done());
  EXPECT_FALSE(e.synchronize(Seconds(0.01))) << "the deadline passed first";
  EXPECT_FALSE(s.synchronize(Seconds(0.01)));
  go = true;
  EXPECT_TRUE(e.synchronize());
  EXPECT_TRUE(ran);
  EXPECT_TRUE(e.done());
  EXPECT_TRUE(Event().done());
  EXPECT_TRUE(Event().synchronize(Seconds(0)));
}

TEST(Event, OrdersAnotherStreamWhileTheHostGoesOn) {
  Stream producer(kAsync, Stream::Mode::kThread), consumer(kAsync, Stream::Mode::kThread);
  for (int round = 0; round < 100; ++round) {
    int value = 0, seen = -1;  // plain memory: without the event this is a data race
    producer.enqueue([&](Parallel&) {
      if (round % 10 == 0) std::this_thread::sleep_for(milliseconds(2));
      value = round;
    });
    consumer.wait(producer.record());
    consumer.enqueue([&](Parallel&) { seen = value; });
    consumer.synchronize();
    ASSERT_EQ(seen, round);
  }
}

// The reason for the asynchronous device: work without its event reads old values; with it, the new ones.
TEST(Event, ThatIsMissingShowsOnTheAsyncDevice) {
  for (bool with_event : {false, true}) {
    Stream producer(kAsync, Stream::Mode::kThread), consumer(kAsync, Stream::Mode::kThread);
    std::atomic<int> value{0};
    int seen = -1;
    std::atomic<bool> consumed{false};
    producer.enqueue([&, with_event](Parallel&) {
      for (int i = 0; !with_event && !consumed && i < 120'000; ++i) std::this_thread::sleep_for(milliseconds(1));
      value = 1;
    });
    if (with_event) consumer.wait(producer.record());
    consumer.enqueue([&](Parallel&) {
      seen = value;
      consumed = true;
    });
    consumer.synchronize();
    producer.synchronize();
    EXPECT_EQ(seen, with_event ? 1 : 0);
  }
}

TEST(Event, TensorsWrittenOnOneStreamAreReadOnAnother) {
  Stream compute(kAsync, Stream::Mode::kThread), other(kAsync, Stream::Mode::kThread);
  WithStream with(compute);
  Tensor a = Tensor::zeros({1 << 14}), b = Tensor::zeros({1 << 14});
  for (int i = 1; i <= 20; ++i) {
    raw::fill(a, i);
    other.wait(compute.record());
    {
      WithStream inner(other);
      raw::copy(b, a);
    }
    compute.wait(other.record());  // else the next fill would overtake the copy
  }
  other.synchronize();
  EXPECT_EQ(b.to_vector(), std::vector<double>(1 << 14, 20.0));
}

TEST(Errors, StopLaterTasksAndReachEveryWaiter) {
  Stream s(kAsync, Stream::Mode::kThread), follower(kAsync, Stream::Mode::kThread);
  bool later = false, followed = false;
  Event good = s.record();
  s.enqueue([](Parallel&) { throw Error(ExitCode::kBadData, "index 9 of 8"); });
  s.enqueue([&](Parallel&) { later = true; });
  Event bad = s.record();
  follower.wait(bad);
  follower.enqueue([&](Parallel&) { followed = true; });
  EXPECT_TRUE(good.synchronize());
  for (int i = 0; i < 2; ++i) {
    try {
      i ? follower.synchronize() : bad.synchronize();
      FAIL();
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kBadData);
      EXPECT_STREQ(e.what(), "index 9 of 8");
    }
  }
  EXPECT_FALSE(later);
  EXPECT_FALSE(followed);
}

TEST(Errors, WaitingInlineStreamsRethrow) {
  Stream s(kAsync, Stream::Mode::kThread), host({}, Stream::Mode::kInline);
  s.enqueue([](Parallel&) { throw Error(ExitCode::kBadData, "no"); });
  EXPECT_THROW(host.wait(s.record()), Error);
}

TEST(Memory, DroppedByTheHostLivesUntilItsWorkIsDone) {
  Stream s(kAsync, Stream::Mode::kThread);
  WithStream with(s);
  const Tensor out = Tensor::zeros({1000});
  for (int i = 0; i < 50; ++i) {
    Tensor temporary = Tensor::full({1000}, i);
    raw::copy(out, temporary);
  }  // each temporary is dropped while its copy may still be in the queue, and its block is taken again
  EXPECT_EQ(out.to_vector(), std::vector<double>(1000, 49.0));
}

TEST(Context, IsSetByScopesAndOfEachThreadAlone) {
  Stream s({}, Stream::Mode::kInline);
  Stream& fallback = current_stream();
  {
    WithStream with(s);
    EXPECT_EQ(&current_stream(), &s);
    NoGrad none;
    std::thread([&] {
      EXPECT_NE(&current_stream(), &s);
      EXPECT_TRUE(context().grad);
    }).join();
    EXPECT_FALSE(context().grad);
  }
  EXPECT_EQ(&current_stream(), &fallback);
  EXPECT_TRUE(context().grad);
}

}  // namespace
}  // namespace lockstep::stream_test
