// What only thread-ranks can show in one process: how a group ends.
#include "comm/local/local_comm.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "core/tensor/raw_ops.h"
#include "tests/comm/deadlines.h"
#include "tests/comm/errors.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing::local_comm_test {
namespace {

using Clock = std::chrono::steady_clock;

RankOptions impatient(DeviceType type = DeviceType::kCpu) {
  return {.comm = {.deadline = Seconds(0.3)}, .device = Device{type}};
}

TEST(LocalComm, AMissedDeadlineNamesTheRankAndItsLastCall) {
  with_short_deadline([](Seconds deadline) {
    run_ranks(4,
              [&](Communicator& comm) {
                const Tensor t = Tensor::zeros({8});
                comm.broadcast(t, 0, "params.1").wait();
                if (comm.rank() == 2) return stay_away(comm);
                const auto start = Clock::now();
                const Error e = error_of([&] { comm.all_reduce(t, ReduceOp::kSum, "grads.3").wait(); });
                EXPECT_LT(Clock::now() - start, Seconds(time_bound(3 * deadline.count(), deadline.count() + 60)));
                EXPECT_EQ(e.code(), ExitCode::kRankLost);
                expect_parts(e.what(),
                             {"all_reduce #2 of grads.3", str("rank 2 did not arrive within ", deadline.count(), " s"),
                              "its last: broadcast #1 of params.1", "arrived: ranks 0, 1 and 3"});
                // Poisoned for good.
                EXPECT_EQ(error_of([&] { comm.barrier("later"); }).code(), ExitCode::kRankLost);
              },
              {.comm = {.deadline = deadline}});
  });
}

TEST(LocalComm, TheLateRankIsToldToo) {
  run_ranks(
      2,
      [](Communicator& comm) {
        if (comm.rank() == 1) stay_away(comm);
        const Error e = error_of([&] { comm.barrier("start"); });
        EXPECT_EQ(e.code(), ExitCode::kRankLost);
        expect_parts(e.what(), {"barrier #1 of start", "rank 1 did not arrive", "it made no call yet"});
      },
      impatient());
}

TEST(LocalComm, ARankThatEndedIsNotWaitedFor) {
  const auto start = Clock::now();
  run_ranks(3, [](Communicator& comm) {
    if (comm.rank() == 1) return;
    const Error e = error_of([&] { comm.barrier("end"); });
    expect_parts(e.what(), {"rank 1 has ended", "arrived: rank"});
  });
  EXPECT_LT(Clock::now() - start, at_once());
}

TEST(LocalComm, OnAnAsynchronousStreamTheErrorComesWithTheResult) {
  run_ranks(
      2,
      [](Communicator& comm) {
        Stream stream(Device{DeviceType::kAsyncCpu}, Stream::Mode::kThread);
        WithStream with(stream);
        if (comm.rank() == 1) return stay_away(comm);
        const Tensor t = Tensor::zeros({4});
        comm.all_reduce(t, ReduceOp::kSum, "x").wait();
        EXPECT_EQ(error_of([&] { t.to_vector(); }).code(), ExitCode::kRankLost);
      },
      impatient());
}

TEST(LocalComm, OnAGpuTheWaitThrows) {
  std::atomic<bool> told = false;
  run_ranks(
      2,
      [&](Communicator& comm) {
        if (comm.rank() == 1) return wait_until([&] { return told.load(); });
        Stream stream(fake_gpu(), Stream::Mode::kQueue);
        WithStream with(stream);
        const Tensor t = Tensor::zeros({4});
        const Error e = error_of([&] { comm.all_reduce(t, ReduceOp::kSum, "grads.3").wait(); });
        told = true;
        EXPECT_EQ(e.code(), ExitCode::kRankLost);
        expect_parts(e.what(), {"all_reduce #1 of grads.3", "rank 1 did not arrive within 0.3 s"});
        ASSERT_TRUE(comm.failure());
        EXPECT_EQ(comm.failure()->code(), ExitCode::kRankLost);
      },
      impatient());
}

// Training asks such things in the middle of a step.
TEST(LocalComm, TextsDoNotWaitForTheGpu) {
  std::array<std::atomic<bool>, 2> exchanged_by{}, over_by{};
  run_ranks(2,
            [&](Communicator& comm) {
              EXPECT_FALSE(comm.failure());
              auto &exchanged = exchanged_by[static_cast<size_t>(comm.rank())],
                   &over = over_by[static_cast<size_t>(comm.rank())];
              fake_gpu_enqueue(*current_stream().device_queue(), [&] {
                wait_until([&] { return exchanged.load(); });
                over = true;
              });
              EXPECT_EQ(all_gather_text(comm, str("rank ", comm.rank()), "who")[1], "rank 1");
              EXPECT_EQ(broadcast_text(comm, "said", 1, "text"), "said");
              EXPECT_FALSE(over);
              exchanged = true;
              const Tensor t = Tensor::full({3}, 1);  // what the GPU writes is waited for
              comm.all_reduce(t, ReduceOp::kSum, "x").wait();
              EXPECT_EQ(t.to_vector(), std::vector<double>(3, 2));
              EXPECT_TRUE(over);
            },
            {.device = fake_gpu()});
}

// Staging memory grows with the calls and holds parts with gaps between them, which stay as they were.
TEST(LocalComm, OnAGpuGapsBetweenPartsStay) {
  run_ranks(2,
            [](Communicator& comm) {
              for (int64_t n : {3, 700'000, 5}) {
                const Tensor in = Tensor::full({2 * n + 1}, comm.rank() + 1), out = Tensor::full({2 * n + 2}, -7);
                comm.all_to_all(out, {n, n}, {0, n + 1}, in, {n, n}, {0, n + 1}, "parts").wait();
                const auto got = out.to_vector();
                EXPECT_EQ(got[0], 1);
                EXPECT_EQ(got[static_cast<size_t>(n)], -7);
                EXPECT_EQ(got[static_cast<size_t>(n + 1)], 2);
                EXPECT_EQ(got[static_cast<size_t>(2 * n + 1)], -7);
              }
            },
            {.device = fake_gpu()});
}

TEST(LocalComm, DifferingCallsAreAnErrorThatNamesBoth) {
  auto both = [](const std::function<void(Communicator&)>& call, const std::vector<std::string>& parts) {
    run_ranks(3, [&](Communicator& comm) {
      const Error e = error_of([&] { call(comm); });
      EXPECT_EQ(e.code(), ExitCode::kRanksDisagree);
      expect_parts(e.what(), parts);
    });
  };
  auto zeros = [](int64_t n, DType dtype = DType::kFloat32) { return Tensor::zeros({n}, dtype); };
  both(
      [&](Communicator& c) {
        if (c.rank() == 1) c.broadcast(zeros(4), 0, "w").wait();
        else c.all_reduce(zeros(4), ReduceOp::kSum, "w").wait();
      },
      {"ranks 0 and 2 call all_reduce #1 of w (sum, fp32, 4 elements)", "rank 1 calls broadcast #1 of w (root 0"});
  both([&](Communicator& c) { c.all_reduce(zeros(4 + c.rank()), ReduceOp::kSum, "w").wait(); },
       {"4 elements", "5 elements", "6 elements"});
  both(
      [&](Communicator& c) {
        c.all_reduce(zeros(4, c.rank() ? DType::kFloat32 : DType::kInt32), ReduceOp::kSum, "w").wait();
      },
      {"rank 0 calls", "int32", "ranks 1 and 2 call"});
  both([&](Communicator& c) { c.all_reduce(zeros(4), c.rank() ? ReduceOp::kSum : ReduceOp::kMax, "w").wait(); },
       {"(max", "(sum"});
  both([&](Communicator& c) { c.all_reduce(zeros(4), ReduceOp::kSum, c.rank() == 2 ? "a" : "b").wait(); },
       {"of a", "of b"});
  both([&](Communicator& c) { c.broadcast(zeros(4), c.rank() == 2 ? 1 : 0, "w").wait(); }, {"root 0", "root 1"});
  both(
      [&](Communicator& c) {
        const std::vector<int64_t> sent(3, 2), received(3, c.rank() == 1 ? 1 : 2), places = {0, 2, 4};
        c.all_to_all(zeros(6), received, places, zeros(6), sent, places, "w").wait();
      },
      {"rank 1 calls all_to_all", "receives [1, 1, 1]", "receives [2, 2, 2]"});
  both(
      [&](Communicator& c) {
        if (c.rank() == 0) c.send(zeros(3), 1, "w").wait();
        if (c.rank() == 1) c.receive(zeros(4), 0, "w").wait();
        c.barrier("end");
      },
      {"rank 1 calls receive #1 of w from rank 0 (fp32, 4 elements)", "send #1 of w to rank 1 (fp32, 3 elements)"});
}

TEST(LocalComm, AReceiveWithoutASendEndsAtTheDeadline) {
  run_ranks(
      2,
      [](Communicator& comm) {
        const Tensor t = Tensor::zeros({4});
        const Error e = error_of([&] {
          if (comm.rank() == 0) comm.receive(t, 1, "x").wait();
          stay_away(comm);
          comm.barrier("end");
        });
        expect_parts(e.what(), {"receive #1 of x from rank 1: nothing arrived within 0.3 s"});
      },
      impatient());
}

TEST(LocalComm, AbortReachesEveryRankAndEverySplit) {
  const auto start = Clock::now();
  run_ranks(4, [](Communicator& comm) {
    auto half = comm.split(comm.rank() / 2, 0, "half");
    auto inner = half->split(0, 0, "inner");
    comm.barrier("all have their parts");
    if (comm.rank() == 3) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));  // the others wait by now, or soon: both are right
      comm.abort(Error(ExitCode::kRankLost, "the disk of rank 3 is full"));
    }
    // Ranks 0 and 1 are complete, so that only the poison can end them.
    const Error e = error_of([&] {
      for (;;) comm.rank() == 2 ? inner->barrier("b") : half->barrier("b");
    });
    EXPECT_EQ(e.code(), ExitCode::kRankLost);
    expect_parts(e.what(), {"the disk of rank 3 is full"});
  });
  EXPECT_LT(Clock::now() - start, at_once());
}

TEST(LocalComm, AnExceptionOfOneRankEndsAllAndIsTheOneRethrown) {
  const auto start = Clock::now();
  for (DeviceType type : {DeviceType::kCpu, DeviceType::kAsyncCpu}) {
    const Error e = error_of([&] {
      run_ranks(3,
                [](Communicator& comm) {
                  auto sub = comm.split(0, 0, "sub");
                  const Tensor t = Tensor::zeros({4});
                  if (comm.rank() == 1) throw Error(ExitCode::kNumeric, "NaN in rank 1");
                  const Work pending = sub->all_reduce(t, ReduceOp::kSum, "x");
                  pending.wait();
                  t.to_vector();
                },
                {.device = Device{type}});
    });
    EXPECT_EQ(e.code(), ExitCode::kNumeric);
    EXPECT_STREQ(e.what(), "NaN in rank 1");
  }
  EXPECT_LT(Clock::now() - start, at_once());
}

TEST(LocalComm, SynchronizeHasADeadlineOfItsOwn) {
  std::atomic<bool> told = false;
  run_ranks(2, [&](Communicator& comm) {
    const Tensor t = Tensor::zeros({4});
    if (comm.rank() == 0) {
      const Work work = comm.all_reduce(t, ReduceOp::kSum, "x");
      EXPECT_FALSE(work.done());
      const Error e = error_of([&] { work.synchronize(Seconds(0.1)); });
      expect_parts(e.what(), {"all_reduce #1 of x: not done within 0.1 s"});
      EXPECT_EQ(e.code(), ExitCode::kRankLost);
      told = true;
      work.synchronize(kPatience);  // the communicator itself goes on
    } else {
      wait_until([&] { return told.load(); });
      comm.all_reduce(t, ReduceOp::kSum, "x").wait();
    }
  });
}

TEST(LocalComm, ManySmallCallsOnMoreRanksThanCores) {
  run_ranks(8, [](Communicator& comm) {
    const Tensor t = Tensor::of<int64_t>({comm.rank()}, {1});
    for (int k = 0; k < 200; ++k) comm.all_reduce(t, ReduceOp::kMax, "x");
    comm.all_reduce(t, ReduceOp::kSum, "x").wait();
    EXPECT_EQ(t.item(), 7 * 8);
  });
}

}  // namespace
}  // namespace lockstep::testing::local_comm_test
