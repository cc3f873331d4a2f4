// What the suite (suite.cpp) leaves open of ranks with a GPU each: that the host waits for nothing, and how a group
// ends. With the fake NCCL; NCCL itself is only seen to load, where it was built.
#include "comm/nccl/nccl_comm.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <thread>

#include "core/device/allocator.h"
#include "core/device/graph.h"
#include "core/tensor/raw_ops.h"
#include "tests/comm/deadlines.h"
#include "tests/comm/errors.h"
#include "tests/support/nccl_ranks.h"

namespace lockstep::testing::nccl_comm_test {
namespace {

using Clock = std::chrono::steady_clock;

const CommOptions kImpatient{.deadline = Seconds(0.5)};

void sleep_for(double seconds) { std::this_thread::sleep_for(Seconds(seconds)); }

// Until the communicator fails: what the GPU was doing ends without a word, the next call throws.
Error next_error(Communicator& comm) {
  return error_of([&] {
    const auto start = Clock::now();
    while (Clock::now() - start < Seconds(120)) {
      comm.all_reduce(Tensor::zeros({2}), ReduceOp::kSum, "next").wait();
      sleep_for(0.01);
    }
  });
}

TEST(NcclComm, TheHostWaitsForNothing) {
  std::atomic<int> hosts_past = 0;
  run_nccl_ranks(3, [&](Communicator& comm) {
    EXPECT_EQ(comm.backend(), "nccl");
    if (comm.rank() == 2)  // whose GPU is late
      fake_gpu_enqueue(*current_stream().device_queue(), [&] { wait_until([&] { return hosts_past == 3; }); });
    const Tensor x = Tensor::full({1000}, comm.rank() + 1), y = Tensor::zeros({1000}), parts = Tensor::zeros({3});
    const Work sum = comm.all_reduce(x, ReduceOp::kSum, "x");
    sum.wait();
    raw::add(y, x, x);
    comm.all_gather(parts, y.slice(0, 0, 1), {1, 1, 1}, "parts").wait();
    EXPECT_FALSE(sum.done());
    ++hosts_past;
    EXPECT_EQ(parts.to_vector(), std::vector<double>(3, 12));
    EXPECT_TRUE(sum.done());
  });
}

// What only texts and host memory travel by needs no memory and no queue of a GPU.
TEST(NcclComm, ACopyForHostMemoryIsNoneOfNccl) {
  run_nccl_ranks(3, [&](Communicator& comm) {
    comm.barrier("all are here");
    const int64_t before = fake_nccl_connected() + fake_nccl_shared();
    comm.barrier("all have looked");
    const auto copy = comm.copy_for_host("state");
    EXPECT_EQ(copy->rank(), comm.rank());
    EXPECT_EQ(copy->size(), 3);
    EXPECT_EQ(copy->machines(), comm.machines());
    EXPECT_EQ(all_gather_values(*copy, 10 + comm.rank(), "values"), (std::vector<int64_t>{10, 11, 12}));
    EXPECT_EQ(fake_nccl_connected() + fake_nccl_shared(), before);
    comm.barrier("all have looked again");
    comm.abort(Error(ExitCode::kRankLost, "planted"));
    EXPECT_TRUE(copy->failure().has_value()) << "it ends with what it is a copy of";
  });
}

TEST(NcclComm, AGraphHoldsCollectives) {
  run_nccl_ranks(3, [](Communicator& comm) {
    const auto me = static_cast<size_t>(comm.rank());
    const std::vector<int64_t> counts = {2, 0, 3}, offsets = {0, 2, 2};
    const Tensor x = Tensor::full({5}, 1), whole = Tensor::zeros({5});
    const Tensor part = whole.slice(0, offsets[me], offsets[me] + counts[me]);
    StreamGraph graph(current_stream());
    // Nine times x: three times the sum, of which each rank's part is doubled and gathered.
    auto step = [&] {
      comm.all_reduce(x, ReduceOp::kSum, "x").wait();
      const Tensor mine = x.slice(0, offsets[me], offsets[me] + counts[me]);
      if (counts[me] > 0) raw::add(part, mine, mine);
      comm.all_gather(whole, part, counts, "whole").wait();
      raw::add(x, x, whole);
    };
    graph.record(step);
    for (int k = 1; k <= 3; ++k) {
      graph.launch();
      EXPECT_EQ(x.to_vector(), std::vector<double>(5, std::pow(9, k)));
    }
    const Error e = error_of([&] { graph.record([&] { comm.all_reduce(x, ReduceOp::kMax, "x").wait(); }); });
    EXPECT_EQ(e.code(), ExitCode::kConfig);
    expect_parts(e.what(), {"through host memory cannot be part of a recorded step: set graph: false"});
    step();
    EXPECT_EQ(x.to_vector(), std::vector<double>(5, std::pow(9, 4)));
    comm.barrier("end");
  });
}

constexpr int64_t kLarge = int64_t(1) << 20;  // elements: of what is smaller, nothing is registered

// Sums and wholes of registered memory, used and dropped after the communicator.
TEST(NcclComm, MovesRegisteredMemoryDirectly) {
  const int64_t before = fake_nccl_direct();
  run_nccl_ranks(2, [](Communicator& comm) {
    const Device device = current_device();
    const int64_t in_use = allocator_stats(device).in_use(MemoryUse::kGradients);
    Tensor outlives;
    {
      auto group = comm.split(0, comm.rank(), "group");
      const int64_t sent = group->bytes_sent();
      WithMemoryUse use(MemoryUse::kGradients);
      const Tensor sum = group->registered(kLarge, DType::kFloat32),
                   whole = group->registered(kLarge, DType::kBFloat16);
      EXPECT_EQ(group->bytes_sent(), sent) << "to find each other is no payload";
      EXPECT_EQ(allocator_stats(device).in_use(MemoryUse::kGradients) - in_use, 6 * kLarge);
      const Tensor mine = whole.slice(0, comm.rank() * kLarge / 2, (comm.rank() + 1) * kLarge / 2);
      auto step = [&](double value) {
        raw::fill(sum, value + comm.rank());
        raw::fill(mine, value + comm.rank());
        group->all_reduce(sum, ReduceOp::kSum, "sum").wait();
        group->all_gather(whole, mine, {kLarge / 2, kLarge / 2}, "whole").wait();
      };
      auto look = [&](double value) {
        EXPECT_EQ(sum.slice(0, kLarge - 1, kLarge).item(), 2 * value + 1);
        EXPECT_EQ(whole.slice(0, 0, 1).item(), value);
        EXPECT_EQ(whole.slice(0, kLarge - 1, kLarge).item(), value + 1);
      };
      step(1);
      look(1);
      {
        StreamGraph graph(current_stream());
        graph.record([&] {
          step(5);
          EXPECT_NE(group->registered(kLarge, DType::kFloat32).storage(), nullptr) << "while recording, plain memory";
        });
        graph.launch();
        look(5);
        EXPECT_EQ(allocator_stats(device).in_use(MemoryUse::kGradients) - in_use, 6 * kLarge);
      }
      const Tensor small = group->registered(8, DType::kFloat32);
      raw::fill(small, 1);
      group->all_reduce(small, ReduceOp::kSum, "small").wait();
      EXPECT_EQ(small.slice(0, 0, 1).item(), 2);
      outlives = sum;
    }
    EXPECT_EQ(outlives.slice(0, 0, 1).item(), 11);
    EXPECT_EQ(allocator_stats(device).in_use(MemoryUse::kGradients) - in_use, 4 * kLarge);
    outlives = Tensor();
    EXPECT_EQ(allocator_stats(device).in_use(MemoryUse::kGradients), in_use);
  });
  EXPECT_EQ(fake_nccl_direct() - before, 4);
}

TEST(NcclComm, RegistersOnEveryRankOrOnNone) {
  const auto sums = [](Communicator& comm) {
    const Tensor sum = comm.registered(kLarge, DType::kFloat32), next = comm.registered(kLarge, DType::kFloat32);
    for (const Tensor& t : {sum, next}) {
      raw::fill(t, comm.rank());
      comm.all_reduce(t, ReduceOp::kSum, "sum").wait();
      EXPECT_EQ(t.slice(0, kLarge - 1, kLarge).item(), 3);
    }
  };
  const int64_t before = fake_nccl_direct();
  run_nccl_ranks(3, sums, {.deadline = kPatience}, {.windows = false});
  run_nccl_ranks(3, sums, {.deadline = kPatience}, {.no_window_on = 1});
  run_nccl_ranks(1, [](Communicator& comm) { raw::fill(comm.registered(kLarge, DType::kFloat32), 1); });
  EXPECT_EQ(fake_nccl_direct(), before);
  run_nccl_ranks(3, sums);
  EXPECT_EQ(fake_nccl_direct() - before, 2);
}

TEST(NcclComm, WithoutMemoryForAWindowTheErrorIsTheUsualOne) {
  const Error e = error_of([] {
    run_nccl_ranks(2, [](Communicator& comm) {
      WithMemoryUse use(MemoryUse::kParameters);
      WithMemoryFor named("blocks.0");
      comm.registered(int64_t(4) << 30, DType::kFloat32);
    });
  });
  EXPECT_EQ(e.code(), ExitCode::kDevice);
  expect_parts(e.what(), {"out of memory on cuda:", "17179869184 bytes asked for (parameters of blocks.0)"});
}

TEST(NcclComm, RanksThatRegisterDifferentlyAreTold) {
  run_nccl_ranks(2, [](Communicator& comm) {
    const Error e = error_of([&] { comm.registered(kLarge * (1 + comm.rank()), DType::kFloat32); });
    EXPECT_EQ(e.code(), ExitCode::kRanksDisagree);
    expect_parts(e.what(), {"ranks register memory of different sizes"});
  });
}

TEST(NcclComm, ARegistrationThatFailsOnOneRankEndsAllAtOnce) {
  const auto start = Clock::now();
  run_nccl_ranks(3,
                 [](Communicator& comm) {
                   const Error e = error_of([&] { comm.registered(kLarge, DType::kFloat32); });
                   EXPECT_EQ(e.code(), ExitCode::kDevice);
                   expect_parts(e.what(), {"registering memory: unhandled cuda error; NCCL_WIN_ENABLE=0"});
                 },
                 {.deadline = kPatience}, {.fails_before_meeting_on = 1});
  EXPECT_LT(Clock::now() - start, at_once());
}

TEST(NcclComm, ARegistrationThatHangsEndsAtTheDeadline) {
  with_short_deadline([](Seconds deadline) {
    run_nccl_ranks(2,
                   [&](Communicator& comm) {
                     const Error e = error_of([&] { comm.registered(kLarge, DType::kFloat32); });
                     EXPECT_EQ(e.code(), ExitCode::kRankLost);
                     expect_parts(e.what(),
                                  {str("did not register memory on all ranks within ", deadline.count(), " s"),
                                   "NCCL_WIN_ENABLE=0"});
                   },
                   {.deadline = deadline}, {.register_hangs = true});
  });
}

TEST(NcclComm, TwoRanksOfOneGpuAreRefusedOnEveryRank) {
  fake_nccl();
  fake_gpu(0, {.devices = 2});
  run_ranks(3, [](Communicator& host) {
    const Device device{DeviceType::kCuda, host.rank() == 1 ? 1 : 0};
    std::string why;
    EXPECT_FALSE(make_nccl_communicator(host, device, {}, &why));
    expect_parts(why, {"NCCL needs one GPU for each rank, but ranks 0 and 2 share one", "0000:00:00.0"});
    host.barrier("the host's communicator serves");
  });
}

TEST(NcclComm, WithoutALibraryTheHostServes) {
  fake_gpu(0, {.devices = 2});
  set_nccl_api(nullptr);
  if (find_nccl_api()) GTEST_SKIP() << "liblockstep_nccl.so is built here";
  run_ranks(2, [](Communicator& host) {
    std::string why;
    EXPECT_FALSE(make_nccl_communicator(host, {DeviceType::kCuda, host.rank()}, {}, &why));
    expect_parts(why, {"rank 0: this lockstep cannot use NCCL", "liblockstep_nccl.so"});
  });
  EXPECT_EQ(error_of([] { nccl_api(); }).code(), ExitCode::kDevice);
}

TEST(NcclComm, OtherVersionsOnOtherRanksAreAnError) {
  fake_nccl();
  fake_gpu(0, {.devices = 2});
  const int64_t before = fake_nccl_version_calls();
  run_ranks(2, [&](Communicator& host) {
    if (host.rank() == 1) {
      wait_until([&] { return fake_nccl_version_calls() > before; });  // rank 0 has said its own
      fake_nccl({.version = "2.27.3"});
    }
    const Error e = error_of([&] { make_nccl_communicator(host, {DeviceType::kCuda, host.rank()}); });
    EXPECT_EQ(e.code(), ExitCode::kRanksDisagree);
    expect_parts(e.what(), {"rank 0 has 2.28.9, rank 1 has 2.27.3"});
  });
}

TEST(NcclComm, RanksThatDoNotConnectEndAtTheDeadline) {
  fake_nccl({.connect_hangs = true});
  fake_gpu(0, {.devices = 2});
  run_ranks(2, [](Communicator& host) {
    const Error e = error_of([&] { make_nccl_communicator(host, {DeviceType::kCuda, host.rank()}, kImpatient); });
    EXPECT_EQ(e.code(), ExitCode::kRankLost);
    expect_parts(e.what(), {"NCCL did not connect the 2 ranks within 0.5 s"});
  });
}

TEST(NcclComm, AMissedDeadlineNamesTheRankAndItsLastCall) {
  with_short_deadline([](Seconds deadline) {
    run_nccl_ranks(3,
                   [&](Communicator& comm) {
                     const Tensor t = Tensor::zeros({8});
                     comm.broadcast(t, 0, "params.1").wait();
                     if (comm.rank() == 1) return stay_away(comm);
                     const Work work = comm.all_reduce(t, ReduceOp::kSum, "grads.3");
                     const auto start = Clock::now();
                     const Error e = error_of([&] { work.synchronize(kPatience); });
                     EXPECT_LT(Clock::now() - start, deadline + at_once());
                     EXPECT_EQ(e.code(), ExitCode::kRankLost);
                     expect_parts(e.what(), {"all_reduce #2 of grads.3",
                                             str("rank 1 did not arrive within ", deadline.count(), " s"),
                                             "its last: broadcast #1 of params.1", "arrived: ranks 0 and 2"});
                     // Poisoned for good, its host's side too.
                     EXPECT_EQ(error_of([&] { comm.barrier("later"); }).code(), ExitCode::kRankLost);
                     EXPECT_EQ(error_of([&] { all_gather_values(comm, 1, "values"); }).code(), ExitCode::kRankLost);
                   },
                   {.deadline = deadline});
  });
}

// What a GPU was at is ended, and the result is none: a host that waits for it is told.
TEST(NcclComm, TheErrorComesWithTheResult) {
  with_short_deadline([](Seconds deadline) {
    run_nccl_ranks(2,
                   [&](Communicator& comm) {
                     if (comm.rank() == 1) return stay_away(comm);
                     const Tensor t = Tensor::zeros({8});
                     const Tensor sum = Tensor::zeros({8});
                     comm.all_reduce(t, ReduceOp::kSum, "x").wait();
                     raw::add(sum, t, t);
                     const Error late = error_of([&] { sum.to_vector(); });
                     const Error next = error_of([&] { comm.all_reduce(t, ReduceOp::kSum, "y"); });
                     for (const Error& e : {late, next})
                       expect_parts(e.what(),
                                    {str("all_reduce #1 of x: rank 1 did not arrive within ", deadline.count(), " s"),
                                     "it made no call yet"});
                   },
                   {.deadline = deadline});
  });
}

TEST(NcclComm, DifferingCallsAreAnErrorThatNamesBoth) {
  std::atomic<int> called = 0;
  auto both = [&](const std::function<void(Communicator&)>& call, const std::vector<std::string>& parts) {
    called = 0;
    run_nccl_ranks(3, [&](Communicator& comm) {
      const auto start = Clock::now();
      const Error first = error_of([&] { call(comm); });
      ++called;
      const Error e = first.code() == ExitCode::kOk ? next_error(comm) : first;
      EXPECT_LT(Clock::now() - start, at_once());
      EXPECT_EQ(e.code(), ExitCode::kRanksDisagree);
      expect_parts(e.what(), parts);
    });
  };
  // Whoever comes first is told later: by then the others' text holds it all.
  auto late = [&](Communicator& c, int rank) {
    if (c.rank() == rank) wait_until([&] { return called == c.size() - 1; });
  };
  both(
      [&](Communicator& c) {
        late(c, 1);
        if (c.rank() == 1) c.broadcast(Tensor::zeros({4}), 0, "w").wait();
        else c.all_reduce(Tensor::zeros({4}), ReduceOp::kSum, "w").wait();
      },
      {"ranks 0 and 2 call all_reduce #1 of w (sum, fp32, 4 elements)", "rank 1 calls broadcast #1 of w (root 0"});
  both(
      [&](Communicator& c) {
        late(c, 2);
        c.all_reduce(Tensor::zeros({c.rank() == 2 ? 5 : 4}), ReduceOp::kSum, "w").wait();
      },
      {"rank 2 calls all_reduce #1 of w (sum, fp32, 5 elements)"});
  both(
      [&](Communicator& c) {
        late(c, 0);
        const std::vector<int64_t> sent(3, 2), received(3, c.rank() == 1 ? 1 : 2), places = {0, 2, 4};
        c.all_to_all(Tensor::zeros({6}), received, places, Tensor::zeros({6}), sent, places, "w").wait();
      },
      {"rank 1 calls all_to_all", "receives [1, 1, 1]", "receives [2, 2, 2]"});
  // As on hosts of other ranks: seen where all meet next.
  both(
      [&](Communicator& c) {
        if (c.rank() == 1) c.all_reduce(Tensor::zeros({0}), ReduceOp::kSum, "w").wait();
        c.barrier("end");
      },
      {"ranks 0 and 2 call barrier #", " of end (after 0 calls of GPUs", "rank 1 calls barrier #",
       " of end (after 1 calls of GPUs"});
}

TEST(NcclComm, CallsThatAgreeMayBeFarApart) {
  std::atomic<bool> ahead = false;  // rank 0, further than marks are kept
  run_nccl_ranks(2, [&](Communicator& comm) {
    const Tensor t = Tensor::full({3}, 1);
    if (comm.rank() == 1) wait_until([&] { return ahead.load(); });
    for (int k = 0; k < 200; ++k) comm.broadcast(t, k % 2, str("x", k)).wait();
    if (comm.rank() == 0) ahead = true;
    comm.barrier("end");
    EXPECT_EQ(t.to_vector(), std::vector<double>(3, 1));
  });
}

TEST(NcclComm, AnErrorOfTheLibraryReachesEveryRank) {
  run_nccl_ranks(2, [](Communicator& comm) {
    auto half = comm.split(0, comm.rank(), "half");
    comm.barrier("start");
    if (comm.rank() == 0) fake_nccl({.async_error = "remote process exited"});
    for (Communicator* c : {&comm, half.get()}) {
      const Error e = next_error(*c);
      EXPECT_EQ(e.code(), ExitCode::kRankLost);
      expect_parts(e.what(), {"NCCL on rank", "remote process exited"});
    }
  });
}

TEST(NcclComm, AbortReachesEveryRankAndEverySplit) {
  const auto start = Clock::now();
  run_nccl_ranks(4, [](Communicator& comm) {
    auto half = comm.split(comm.rank() / 2, 0, "half");
    auto inner = half->split(0, 0, "inner");
    comm.barrier("all have their parts");
    if (comm.rank() == 3) {
      sleep_for(0.05);  // the others wait by now, or soon: both are right
      comm.abort(Error(ExitCode::kRankLost, "the disk of rank 3 is full"));
    }
    // Ranks 0 and 1 are complete, so that only the poison can end them.
    const Error e = next_error(comm.rank() == 2 ? *inner : *half);
    EXPECT_EQ(e.code(), ExitCode::kRankLost);
    expect_parts(e.what(), {"the disk of rank 3 is full"});
    expect_parts(comm.failure()->what(), {"the disk of rank 3 is full"});
  });
  EXPECT_LT(Clock::now() - start, at_once());
}

TEST(NcclComm, PartsShareTheResourcesOfTheWholeWhereAsked) {
  for (bool shares : {false, true}) {
    SCOPED_TRACE(shares);
    const int64_t before = fake_nccl_shared();
    run_nccl_ranks(4,
                   [](Communicator& comm) {
                     const int rank = comm.rank();
                     auto half = comm.split(rank / 2, -rank, "half");  // the higher rank first
                     EXPECT_EQ(half->rank(), 1 - rank % 2);
                     auto inner = half->split(0, 0, "inner");
                     auto some = comm.split(rank == 3 ? -1 : 7, rank, "all but one");
                     EXPECT_EQ(some == nullptr, rank == 3);
                     const Tensor x = Tensor::full({2}, 1 << rank), y = Tensor::full({2}, 1 << rank),
                                  z = Tensor::full({2}, 1);
                     half->all_reduce(x, ReduceOp::kSum, "x").wait();
                     inner->broadcast(y, 0, "y").wait();
                     if (some) some->all_reduce(z, ReduceOp::kSum, "z").wait();
                     EXPECT_EQ(x.to_vector(), std::vector<double>(2, rank < 2 ? 3 : 12));
                     EXPECT_EQ(y.to_vector(), std::vector<double>(2, rank < 2 ? 2 : 8));
                     EXPECT_EQ(z.to_vector(), std::vector<double>(2, rank == 3 ? 1 : 3));
                   },
                   {.deadline = kPatience, .nccl_shares = shares});
    EXPECT_EQ(fake_nccl_shared() - before, shares ? 4 + 4 + 3 : 0);
  }
}

TEST(NcclComm, AnAbortReachesPartsThatShareResources) {
  const auto start = Clock::now();
  run_nccl_ranks(4,
                 [](Communicator& comm) {
                   auto half = comm.split(comm.rank() / 2, 0, "half");
                   auto inner = half->split(0, 0, "inner");
                   comm.barrier("all have their parts");
                   if (comm.rank() == 3) {
                     sleep_for(0.05);  // the others wait by now, or soon: both are right
                     comm.abort(Error(ExitCode::kRankLost, "the disk of rank 3 is full"));
                   }
                   const Error e = next_error(comm.rank() == 2 ? *inner : *half);
                   EXPECT_EQ(e.code(), ExitCode::kRankLost);
                   expect_parts(e.what(), {"the disk of rank 3 is full"});
                 },
                 {.deadline = kPatience, .nccl_shares = true});
  EXPECT_LT(Clock::now() - start, at_once());
}

TEST(NcclApi, TakesALibraryThatHasItsCalls) {
  for (int found : {22703, 22809, 22801, 22907, 23000}) EXPECT_NO_THROW(check_nccl_version(found, 22809)) << found;
  EXPECT_NO_THROW(check_nccl_version(21801, 22605));
  for (int found : {22602, 30000, 2809}) {
    const Error e = error_of([&] { check_nccl_version(found, 22809); });
    EXPECT_EQ(e.code(), ExitCode::kDevice);
    expect_parts(e.what(), {"needs 2.27.3 or a later 2.x (it was compiled with 2.28.9)", "LD_LIBRARY_PATH"});
  }
}

TEST(NcclApi, RefusesVersionsThatOverwriteMemory) {
  for (int found : {22700, 22701, 22702})
    for (int compiled : {22605, 22700, 22809}) {
      const Error e = error_of([&] { check_nccl_version(found, compiled); });
      EXPECT_EQ(e.code(), ExitCode::kDevice);
      expect_parts(e.what(), {"NCCL 2.27.", "may overwrite memory", "put 2.27.3 or a later one"});
    }
}

// NCCL's abort waits for the graphs that hold its operations.
TEST(NcclComm, AnAbortDropsRecordedStepsFirst) {
  run_nccl_ranks(2, [](Communicator& comm) {
    const Tensor x = Tensor::full({5}, 1);
    StreamGraph graph(current_stream());
    graph.record([&] { comm.all_reduce(x, ReduceOp::kSum, "x").wait(); });
    graph.launch();
    EXPECT_EQ(x.to_vector(), std::vector<double>(5, 2));
    comm.barrier("both have it");
    if (comm.rank() == 1) comm.abort(Error(ExitCode::kRankLost, "rank 1 gives up"));
    wait_until([&] { return !graph.recorded(); });
    EXPECT_FALSE(graph.recorded());
    EXPECT_EQ(error_of([&] { graph.launch(); }).code(), ExitCode::kRankLost);
  });
}

TEST(NcclComm, AnExceptionOfOneRankEndsAllAndIsTheOneRethrown) {
  const auto start = Clock::now();
  const Error e = error_of([] {
    run_nccl_ranks(3, [](Communicator& comm) {
      auto sub = comm.split(0, 0, "sub");
      const Tensor t = Tensor::zeros({4});
      if (comm.rank() == 1) throw Error(ExitCode::kNumeric, "NaN in rank 1");
      sub->all_reduce(t, ReduceOp::kSum, "x").wait();
      t.to_vector();
      throw next_error(*sub);
    });
  });
  EXPECT_EQ(e.code(), ExitCode::kNumeric);
  EXPECT_STREQ(e.what(), "NaN in rank 1");
  EXPECT_LT(Clock::now() - start, at_once());
}

TEST(NcclComm, AnAbortThatHangsEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  auto late = [](Communicator& comm) {
    const Tensor t = Tensor::zeros({8});
    if (comm.rank() == 1) sleep_for(60);
    comm.all_reduce(t, ReduceOp::kSum, "grads.3").wait();
    t.to_vector();
  };
  // On a busy machine the ranks may not even connect within the shortest deadline.
  const auto attempts = [&] {
    for (const double deadline : {0.1, 1.0, 10.0})
      if (error_of([&] { run_nccl_ranks(2, late, {.deadline = Seconds(deadline)}, {.abort_hangs = true}); }).code() !=
          ExitCode::kRankLost)
        return;
  };
  EXPECT_EXIT(attempts(), ::testing::ExitedWithCode(static_cast<int>(ExitCode::kRankLost)),
              "cannot be aborted .it hangs.; the cause: all_reduce #1 of grads.3: rank 1 did not arrive within "
              "(0.1|1|10) s");
}

}  // namespace
}  // namespace lockstep::testing::nccl_comm_test
