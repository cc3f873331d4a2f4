// A communicator without peers: it sends, on paper, exactly what each rank of a real one sends.
#include "comm/plan/plan_comm.h"

#include <gtest/gtest.h>

#include <numeric>

#include "core/device/allocator.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing::plan_comm_test {
namespace {

// Some of everything, on the whole and on both axes of a grid of rows of `group` ranks.
void calls(Communicator& world, int group) {
  const int rank = world.rank(), size = world.size();
  const auto row = world.split_axis(1, group, "row"), column = world.split_axis(group, size / group, "column");
  EXPECT_EQ(row->size(), group);
  EXPECT_EQ(row->rank(), rank % group);
  EXPECT_EQ(column->size(), size / group);
  EXPECT_EQ(column->rank(), rank / group);
  const auto second = row->split(0, rank, "the row's second channel");
  EXPECT_EQ(second->size(), group);
  for (Communicator* comm : {&world, row.get(), column.get(), second.get()}) {
    std::vector<int64_t> counts;
    for (int r = 0; r < comm->size(); ++r) counts.push_back(r == 1 ? 0 : 3 + r);
    const int64_t total = std::accumulate(counts.begin(), counts.end(), int64_t(0));
    const Tensor all = Tensor::zeros({total}), part = Tensor::zeros({counts[static_cast<size_t>(comm->rank())]});
    comm->all_gather(all, part, counts, "x").wait();
    comm->reduce_scatter(part, all, counts, ReduceOp::kSum, "x").wait();
    comm->all_reduce(all, ReduceOp::kSum, "x").wait();
    comm->broadcast(all, comm->size() - 1, "x").wait();
    comm->barrier("x");
  }
}

TEST(PlanComm, SendsWhatEachRealRankSends) {
  for (auto [size, group] : {std::pair(1, 1), {2, 1}, {2, 2}, {4, 2}, {6, 3}, {6, 6}}) {
    SCOPED_TRACE(str(size, " ranks, rows of ", group));
    std::vector<int64_t> real(static_cast<size_t>(size));
    run_ranks(size, [&, group = group](Communicator& comm) {
      calls(comm, group);
      real[static_cast<size_t>(comm.rank())] = comm.bytes_sent();
    });
    for (int rank = 0; rank < size; ++rank) {
      const Device device = new_meta_device();
      Stream stream(device, Stream::Mode::kInline);
      WithStream with(stream);
      const auto comm = make_plan_communicator(rank, size);
      EXPECT_EQ(comm->rank(), rank);
      EXPECT_EQ(comm->size(), size);
      EXPECT_EQ(comm->backend(), "plan");
      calls(*comm, group);
      EXPECT_EQ(comm->bytes_sent(), real[static_cast<size_t>(rank)]) << "rank " << rank;
      EXPECT_EQ(allocator_stats(device).bytes_in_use, 0) << "nothing is held by work that is done";
    }
  }
}

TEST(PlanComm, EveryRankSaysWhatThisOneSays) {
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  WithStream with(stream);
  const auto comm = make_plan_communicator(1, 3);
  EXPECT_EQ(all_gather_text(*comm, "abc", "x"), (std::vector<std::string>{"abc", "abc", "abc"}));
  EXPECT_EQ(all_gather_values(*comm, 7, "x"), (std::vector<int64_t>{7, 7, 7}));
  EXPECT_EQ(broadcast_text(*comm, "abc", 0, "x"), "abc");
}

TEST(PlanComm, LinesOfAGridKnowTheirMachines) {
  const auto comm = make_plan_communicator(13, 24, {2});  // 12 machines of 2
  EXPECT_FALSE(comm->shares_memory());
  EXPECT_EQ(comm->machines()[23], 11);
  const auto machine = comm->split_axis(1, 2, "ranks of a machine");
  EXPECT_EQ(machine->rank(), 1);
  EXPECT_TRUE(machine->shares_memory());
  const auto pairs =
      comm->split_axis(4, 2, "machines two apart");  // 13 is the second rank of machine 6: with machine 4
  EXPECT_EQ(pairs->rank(), 1);
  EXPECT_FALSE(pairs->shares_memory());
  EXPECT_EQ(pairs->machines(), (std::vector<int>{0, 1}));
  EXPECT_FALSE(make_plan_communicator(0, 4, {.gpus = true})->shares_memory());
}

TEST(PlanComm, LinksCarryOneThingAfterTheOther) {
  PlannedLinks::Rates rates;
  rates.bytes_s = 100;
  PlannedLinks links(rates);
  EXPECT_DOUBLE_EQ(links.carry(1, 100, 0), 2);    // [1, 2)
  EXPECT_DOUBLE_EQ(links.carry(4, 100, 0), 5);    // [4, 5)
  EXPECT_DOUBLE_EQ(links.carry(1.5, 100, 0), 3);  // behind the first
  EXPECT_DOUBLE_EQ(links.carry(0, 250, 0), 5.5);  // [0, 1), [3, 4) and what is left behind all
  EXPECT_DOUBLE_EQ(links.carry(6, 0, 6), 6);
}

// Two machines of four ranks, 400 kB a rank, a link of 1 MB/s with 1 s a message, memory of 10 MB/s.
double seconds_of(bool gpus, const std::function<Work(Communicator& comm)>& call) {
  struct NoTime final : SimulatedTime {
    double seconds_of(const TaskCost&) const override { return 0; }
  } time;
  const WithSimulatedTime simulated(time);
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  const WithStream with(stream);
  PlannedLinks links({.latency_s = 1, .bytes_s = 1e6, .memory_bytes_s = 1e7, .meeting_s = 0.5});
  const auto comm = make_plan_communicator(1, 8, {.ranks = 4, .gpus = gpus, .links = &links});
  call(*comm).wait();
  return time.now_s;
}

TEST(PlanComm, AMachineOfGpusGetsEachGatheredByteOnce) {
  const std::vector<int64_t> counts(8, 100'000);  // 400 kB of each rank, 3.2 MB in all
  const auto gather = [&](Communicator& comm) {
    return comm.all_gather(Tensor::zeros({800'000}), Tensor::zeros({100'000}), counts, "x");
  };
  // CPUs: 3 s to compare the calls (3 rounds of 1 s); one round of 1 s and 1.6 s for the parts of a machine's four
  // ranks (1.6 MB at 1 MB/s); 0.24 s to read the parts of the six ranks with other local ranks (2.4 MB at 10 MB/s).
  EXPECT_DOUBLE_EQ(seconds_of(false, gather), 3 + 1 + 1.6 + 0.24);
  // One launch, and one ring: a machine passes on seven of the eight parts (2.8 MB).
  EXPECT_DOUBLE_EQ(seconds_of(true, gather), 0.5 + 1 + 2.8);
}

TEST(PlanComm, AMachineOfGpusSendsEachSumOnce) {
  const std::vector<int64_t> counts(8, 100'000);
  const auto scatter = [&](Communicator& comm) {
    return comm.reduce_scatter(Tensor::zeros({100'000}), Tensor::zeros({800'000}), counts, ReduceOp::kSum, "x");
  };
  // Each rank sends each part to its owner itself: four times four parts leave a machine (6.4 MB), three are read.
  EXPECT_DOUBLE_EQ(seconds_of(false, scatter), 3 + 1 + 6.4 + 0.12);
  EXPECT_DOUBLE_EQ(seconds_of(true, scatter), 0.5 + 1 + 2.8);
  const auto all_reduce = [](Communicator& comm) {
    return comm.all_reduce(Tensor::zeros({800'000}), ReduceOp::kSum, "x");
  };
  EXPECT_DOUBLE_EQ(seconds_of(true, all_reduce), 0.5 + 2 + 5.6) << "the ring is gone through twice";
  const auto broadcast = [](Communicator& comm) { return comm.broadcast(Tensor::zeros({800'000}), 0, "x"); };
  EXPECT_DOUBLE_EQ(seconds_of(true, broadcast), 0.5 + 1 + 3.2);
  // Each pair by itself in either backend: four ranks send 400 kB to each of four, and read 1.2 MB.
  const auto exchange = [](Communicator& comm) {
    std::vector<int64_t> sizes(8, 100'000), places;
    for (int64_t r = 0; r < 8; ++r) places.push_back(100'000 * r);
    return comm.all_to_all(Tensor::zeros({800'000}), sizes, places, Tensor::zeros({800'000}), sizes, places, "x");
  };
  EXPECT_DOUBLE_EQ(seconds_of(true, exchange), 0.5 + 1 + 6.4 + 0.12);
}

// Groups of two on each machine, and lanes of one rank a machine, of which a machine has four at a time.
TEST(PlanComm, GpusThatAreALineOfAGridShareTheLinkWithTheOtherLines) {
  const auto along = [](int stride, int extent) {
    return [stride, extent](Communicator& all) {
      const auto comm = all.split_axis(stride, extent, "line");
      const Work work = comm->all_gather(Tensor::zeros({100'000 * extent}), Tensor::zeros({100'000}),
                                         std::vector<int64_t>(static_cast<size_t>(extent), 100'000), "x");
      work.wait();
      return Work();
    };
  };
  const double split = 0.5;  // a call, too
  EXPECT_DOUBLE_EQ(seconds_of(true, along(1, 2)), split + 0.5 + 0.04) << "within a machine: 400 kB of memory";
  EXPECT_DOUBLE_EQ(seconds_of(true, along(4, 2)), split + 0.5 + 1 + 1.6) << "four lanes, each a part of 400 kB";
}

// Compute that does not wait for an exchange goes on beside it; what waits for it ends with it.
TEST(PlanComm, SimulatedTimeOverlapsExchangesWithTasks) {
  struct OneSecondATask final : SimulatedTime {
    double seconds_of(const TaskCost&) const override { return 1; }
  } time;
  const WithSimulatedTime simulated(time);
  Stream stream(new_meta_device(), Stream::Mode::kInline);
  const WithStream with(stream);
  PlannedLinks::Rates rates;
  rates.bytes_s = 100;
  rates.memory_bytes_s = 1e12;
  PlannedLinks links(rates);
  const auto comm = make_plan_communicator(0, 2, {.ranks = 1, .links = &links});
  const Tensor sent = Tensor::zeros({100}), received = Tensor::zeros({100});
  const auto swap = [&] { return comm->all_to_all(received, {0, 50}, {0, 0}, sent, {0, 50}, {0, 0}, "x"); };
  const double begun = time.now_s;
  const Work work = swap();  // 200 bytes: 2 s
  const auto task = [&] { stream.enqueue([](Parallel&) {}); };
  task();
  EXPECT_DOUBLE_EQ(time.now_s - begun, 1);
  EXPECT_FALSE(work.done());
  work.wait();
  EXPECT_DOUBLE_EQ(time.now_s - begun, 2);
  task();
  EXPECT_DOUBLE_EQ(time.now_s - begun, 3);
  // A stream beside the host.
  Stream beside(stream.device(), Stream::Mode::kThread);
  const Work late = swap();  // ends at 5
  {
    const WithStream on(beside);
    late.wait();
    beside.enqueue([](Parallel&) {});
  }
  EXPECT_DOUBLE_EQ(time.now_s - begun, 3);
  stream.wait(beside.record());
  EXPECT_DOUBLE_EQ(time.now_s - begun, 6);
}

TEST(PlanComm, RefusesWhatItCannotKnow) {
  const auto comm = make_plan_communicator(5, 8);
  EXPECT_EQ(comm->split(-1, 0, "x"), nullptr);
  const auto refuses = [](const auto& call, const char* part) {
    try {
      call();
      ADD_FAILURE() << part;
    } catch (const Error& e) {
      EXPECT_EQ(e.code(), ExitCode::kInternal);
      EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
    }
  };
  refuses([&] { comm->split(2, 0, "odd ones"); }, "of odd ones: a plan of rank 5 of 8");
  refuses([&] { comm->split_axis(1, 3, "thirds"); }, "of thirds: an axis of 3 ranks, 1 apart, of 8");
  EXPECT_THROW(comm->broadcast(Tensor::zeros({3}), 8, "x"), Error) << "arguments are checked as elsewhere";
  EXPECT_THROW(make_plan_communicator(6, 6), Error);
}

}  // namespace
}  // namespace lockstep::testing::plan_comm_test
