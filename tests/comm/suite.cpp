// The laws of a communicator, for both backends.
#include "tests/comm/suite.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <thread>

#include "comm/mpi/mpi_comm.h"
#include "core/base/philox.h"
#include "core/device/allocator.h"
#include "core/tensor/raw_ops.h"
#include "tests/support/fake_gpu.h"
#include "tests/support/nccl_ranks.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {

void on_ranks(const std::function<void(Communicator&)>& body) {
  for (const Device device : {Device{}, Device{DeviceType::kAsyncCpu}, fake_gpu()}) {
    SCOPED_TRACE(to_text(device));
    if (mpi_launched()) {
      const bool async = device.type == DeviceType::kAsyncCpu;
      Stream stream(device, async ? Stream::Mode::kThread : Stream::Mode::kInline);
      WithStream with(stream);
      auto comm = make_mpi_communicator({.deadline = Seconds(60)});
      body(*comm);
      if (comm->size() == 1 && device.type == DeviceType::kCuda) {  // a fake NCCL knows of one process only
        fake_nccl();
        body(*make_nccl_communicator(*comm, device));
      }
      stream.synchronize();
    } else {
      for (int size = 1; size <= 5; ++size) {
        SCOPED_TRACE(str(size, " ranks"));
        run_ranks(size, body, {.device = device});
      }
    }
  }
  if (!mpi_launched())
    for (int size = 1; size <= 5; ++size) {
      SCOPED_TRACE(str(size, " ranks by NCCL"));
      run_nccl_ranks(size, body);
    }
}

int64_t value_of(int rank, int64_t i) { return (i * 7 + rank * 3) % 11 + (rank == 1 && i % 5 == 0 ? 13 : 0); }

Tensor tensor_of(const std::vector<double>& values, DType dtype) {
  return raw::cast(Tensor::of<double>(values, {static_cast<int64_t>(values.size())}), dtype);
}

Tensor values_of(int rank, int64_t n, DType dtype) {
  std::vector<double> values(static_cast<size_t>(n));
  for (int64_t i = 0; i < n; ++i) values[static_cast<size_t>(i)] = static_cast<double>(value_of(rank, i));
  return tensor_of(values, dtype);
}

const std::vector<DType>& all_dtypes() {
  static const std::vector<DType> all = {DType::kFloat32, DType::kBFloat16, DType::kFloat16, DType::kFloat64,
                                         DType::kInt64,   DType::kInt32,    DType::kUInt8};
  return all;
}

namespace {

double reduced(ReduceOp op, int size, int64_t i) {
  double value = static_cast<double>(value_of(0, i));
  for (int r = 1; r < size; ++r) {
    const double next = static_cast<double>(value_of(r, i));
    value = op == ReduceOp::kSum ? value + next : op == ReduceOp::kMax ? std::max(value, next) : std::min(value, next);
  }
  return value;
}

constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

std::vector<int64_t> offsets_of(const std::vector<int64_t>& counts) {
  std::vector<int64_t> offsets(counts.size());
  std::exclusive_scan(counts.begin(), counts.end(), offsets.begin(), int64_t{0});
  return offsets;
}

// Uneven, with a zero among them from 2 ranks on.
std::vector<int64_t> uneven_counts(int size, int64_t unit) {
  std::vector<int64_t> counts;
  for (int r = 0; r < size; ++r) counts.push_back(r == 1 ? 0 : unit * (r + 1) + r);
  return counts;
}

int64_t sum_of(const std::vector<int64_t>& v) { return std::accumulate(v.begin(), v.end(), int64_t{0}); }

// Fails once, with the place, rather than at every element.
template <class Expected>
void expect_elements(const Tensor& t, const std::string& what, Expected expected) {
  const std::vector<double> got = t.to_vector();
  for (size_t i = 0; i < got.size(); ++i)
    if (got[i] != expected(static_cast<int64_t>(i))) {
      ADD_FAILURE() << what << ": element " << i << " is " << got[i] << ", not " << expected(static_cast<int64_t>(i));
      return;
    }
}

TEST(Comm, AllReduceCombinesEveryElement) {
  on_ranks([](Communicator& comm) {
    for (DType dtype : all_dtypes())
      for (ReduceOp op : kOps)
        for (int64_t n : {0, 1, 63, 1000}) {
          const Tensor t = values_of(comm.rank(), n, dtype);
          comm.all_reduce(t, op, "x").wait();
          expect_elements(t, str("all_reduce of ", t), [&](int64_t i) { return reduced(op, comm.size(), i); });
        }
  });
}

TEST(Comm, ReduceScatterGivesEachRankItsPart) {
  on_ranks([](Communicator& comm) {
    const auto me = static_cast<size_t>(comm.rank());
    for (DType dtype : all_dtypes())
      for (ReduceOp op : kOps)
        for (bool in_place : {false, true}) {
          const auto counts = uneven_counts(comm.size(), 50);
          const int64_t begin = offsets_of(counts)[me];
          const Tensor in = values_of(comm.rank(), sum_of(counts), dtype);
          const Tensor out = in_place ? in.slice(0, begin, begin + counts[me]) : Tensor::empty({counts[me]}, dtype);
          comm.reduce_scatter(out, in, counts, op, "x").wait();
          expect_elements(out, str("reduce_scatter of ", in),
                          [&](int64_t i) { return reduced(op, comm.size(), begin + i); });
        }
  });
}

TEST(Comm, AllGatherBringsEveryPartToItsPlace) {
  on_ranks([](Communicator& comm) {
    const auto me = static_cast<size_t>(comm.rank());
    const int64_t large = 25000 / comm.size();  // so that the largest part has 25,000 elements at any number of ranks
    for (DType dtype : all_dtypes())
      for (int64_t unit : {int64_t{1}, int64_t{300}, large})
        for (bool in_place : {false, true}) {
          const auto counts = uneven_counts(comm.size(), unit);
          const auto offsets = offsets_of(counts);
          const Tensor mine = values_of(comm.rank(), counts[me], dtype);
          const Tensor out = Tensor::zeros({sum_of(counts)}, dtype);
          Tensor in = mine;
          if (in_place) {
            in = out.slice(0, offsets[me], offsets[me] + counts[me]);
            raw::copy(in, mine);
          }
          comm.all_gather(out, in, counts, "x").wait();
          for (size_t r = 0; r < counts.size(); ++r)
            expect_elements(out.slice(0, offsets[r], offsets[r] + counts[r]), str("all_gather, part of rank ", r),
                            [&](int64_t i) { return static_cast<double>(value_of(static_cast<int>(r), i)); });
        }
  });
}

TEST(Comm, AllToAllDeliversEachPartToItsRank) {
  on_ranks([](Communicator& comm) {
    auto count = [](int from, int to, int64_t unit) { return (from + 2 * to) % 3 * unit + (from == to ? 1 : 0); };
    for (DType dtype : all_dtypes())
      for (int64_t unit : {2, 70}) {
        std::vector<int64_t> sent, received;
        for (int r = 0; r < comm.size(); ++r) {
          sent.push_back(count(comm.rank(), r, unit));
          received.push_back(count(r, comm.rank(), unit));
        }
        // Received last rank first, to show that offsets are free.
        std::vector<int64_t> places(received.size());
        int64_t at = 0;
        for (size_t r = received.size(); r-- > 0; at += received[r]) places[r] = at;
        const Tensor in = values_of(comm.rank(), sum_of(sent), dtype), out = Tensor::zeros({at}, dtype);
        comm.all_to_all(out, received, places, in, sent, offsets_of(sent), "x").wait();
        for (int r = 0; r < comm.size(); ++r) {
          const auto k = static_cast<size_t>(r);
          int64_t theirs = 0;  // where our part begins in what rank r sends
          for (int q = 0; q < comm.rank(); ++q) theirs += count(r, q, unit);
          expect_elements(out.slice(0, places[k], places[k] + received[k]), str("all_to_all, part of rank ", r),
                          [&](int64_t i) { return static_cast<double>(value_of(r, theirs + i)); });
        }
      }
  });
}

// Twice, so that the second time everything that was read before has been written anew.
TEST(Comm, ShareLetsRanksReadWhatLiesInOthers) {
  on_ranks([](Communicator& comm) {
    if (!comm.shares_memory() || current_device().type == DeviceType::kCuda) return;
    constexpr int64_t kWidth = sizeof(float);
    const auto me = static_cast<size_t>(comm.rank());
    for (const int64_t n : {5, 3000000}) {
      const Tensor mine = Tensor::empty({comm.rank() == 1 ? 0 : n});
      for (int turn = 0; turn < 2; ++turn) {
        raw::fill(mine, 10 * comm.rank() + turn);
        std::vector<int64_t> counts(static_cast<size_t>(comm.size()), comm.rank() == 1 ? 0 : 2);
        counts[me] = 0;
        const Shared all = comm.share(mine, counts, "x");
        all.work.finish();
        for (int r = 0; r < comm.size(); ++r) {
          EXPECT_EQ((*all.at)[static_cast<size_t>(r)] == nullptr, r == 1);
          if (r == 1) continue;
          float copy[2] = {};
          for (int64_t first : {int64_t(0), n - 2}) {
            const auto* there = static_cast<const float*>(all.read(r, first * kWidth, 2 * kWidth, copy));
            EXPECT_EQ(there != copy, all.in_this_process(r));
            EXPECT_EQ(there[0] + there[1], 2.0f * static_cast<float>(10 * r + turn)) << "rank " << r;
          }
        }
        comm.fence("all have read").finish();
      }
    }
    comm.barrier("before any ends");
  });
}

TEST(Comm, BroadcastCopiesTheRoot) {
  on_ranks([](Communicator& comm) {
    for (DType dtype : all_dtypes())
      for (int root = 0; root < comm.size(); ++root)
        for (int64_t n : {0, 1, 777}) {
          const Tensor t = values_of(comm.rank(), n, dtype);
          comm.broadcast(t, root, "x").wait();
          expect_elements(t, str("broadcast from rank ", root),
                          [&](int64_t i) { return static_cast<double>(value_of(root, i)); });
        }
  });
}

TEST(Comm, LargeTensorsOfSeveralChunks) {
  on_ranks([](Communicator& comm) {
    const int64_t n = comm.backend() == "mpi" ? 2'200'017 : 200'017;  // 8.8 MB: more than a chunk of MPI's
    const Tensor t = values_of(comm.rank(), n, DType::kFloat32);
    const Tensor before = Tensor::empty({n});
    raw::copy(before, t);
    comm.all_reduce(t, ReduceOp::kSum, "sum").wait();
    expect_elements(t, "sum", [&](int64_t i) { return reduced(ReduceOp::kSum, comm.size(), i); });

    std::vector<int64_t> counts(static_cast<size_t>(comm.size()), 11);
    counts.back() = n - 11 * (comm.size() - 1);
    const bool last = comm.rank() == comm.size() - 1;
    const Tensor part = Tensor::empty({last ? counts.back() : 11});
    comm.reduce_scatter(part, before, counts, ReduceOp::kMax, "max").wait();
    expect_elements(part, "max", [&](int64_t i) { return reduced(ReduceOp::kMax, comm.size(), 11 * comm.rank() + i); });
    const Tensor whole = Tensor::empty({n});
    comm.all_gather(whole, part, counts, "whole").wait();
    expect_elements(whole, "whole", [&](int64_t i) { return reduced(ReduceOp::kMax, comm.size(), i); });

    const int last_rank = comm.size() - 1;
    comm.broadcast(before, last_rank, "root's").wait();
    expect_elements(before, "broadcast", [&](int64_t i) { return static_cast<double>(value_of(last_rank, i)); });

    const Tensor halves = raw::cast(values_of(comm.rank(), n, DType::kFloat32), DType::kBFloat16);
    comm.all_reduce(halves, ReduceOp::kSum, "halves").wait();
    expect_elements(halves, "halves", [&](int64_t i) { return reduced(ReduceOp::kSum, comm.size(), i); });
  });
}

TEST(Comm, ReduceScatterSumsInRankOrder) {
  on_ranks([](Communicator& comm) {
    const int64_t n = 4000;
    auto value = [](int rank, int64_t i) {
      const uint64_t bits = mix(static_cast<uint64_t>(rank) + 1, static_cast<uint64_t>(i));
      return static_cast<float>(bits >> 40) * static_cast<float>(1 << (bits & 15)) - 1e7f;
    };
    std::vector<float> mine(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) mine[static_cast<size_t>(i)] = value(comm.rank(), i);
    const Tensor in = Tensor::of<float>(mine, {n});
    std::vector<int64_t> counts(static_cast<size_t>(comm.size()), 0);
    counts[0] = n;
    const Tensor out = Tensor::empty({comm.rank() == 0 ? n : 0});
    comm.reduce_scatter(out, in, counts, ReduceOp::kSum, "x").wait();
    expect_elements(out, "sum", [&](int64_t i) {
      float sum = value(0, i);
      for (int r = 1; r < comm.size(); ++r) sum += value(r, i);
      return static_cast<double>(sum);
    });
  });
}

TEST(Comm, MaximumAndMinimumKeepNaN) {
  on_ranks([](Communicator& comm) {
    for (DType dtype : {DType::kFloat32, DType::kFloat64, DType::kBFloat16})
      for (ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin})
        for (int who = 0; who < comm.size(); ++who) {
          const double nan = std::numeric_limits<double>::quiet_NaN();
          const Tensor t = tensor_of({1.0, comm.rank() == who ? nan : 2.0}, dtype);
          comm.all_reduce(t, op, "x").wait();
          const auto got = t.to_vector();
          EXPECT_EQ(got[0], 1.0);
          EXPECT_NE(got[1], got[1]) << to_text(dtype);
        }
  });
}

TEST(Comm, ARingMaySendFirst) {
  on_ranks([](Communicator& comm) {
    const int next = (comm.rank() + 1) % comm.size(), before = (comm.rank() + comm.size() - 1) % comm.size();
    for (int64_t n : {0, 5, comm.backend() == "mpi" ? 2'500'000 : 100'000}) {
      std::vector<Work> sends;
      for (int k = 0; k < 3; ++k) sends.push_back(comm.send(values_of(comm.rank() + k, n, DType::kFloat32), next, "x"));
      for (int k = 0; k < 3; ++k) {
        const Tensor t = Tensor::zeros({n});
        comm.receive(t, before, "x").wait();
        expect_elements(t, str("message ", k), [&](int64_t i) { return static_cast<double>(value_of(before + k, i)); });
      }
      for (const Work& w : sends) w.wait();
    }
    comm.barrier("end");
  });
}

TEST(Comm, SplitMakesGroupsOrderedByKey) {
  on_ranks([](Communicator& comm) {
    const int parity = comm.rank() % 2;
    auto half = comm.split(parity, -comm.rank(), "parity");
    ASSERT_TRUE(half);
    EXPECT_EQ(half->size(), (comm.size() + 1 - parity) / 2);
    EXPECT_EQ(half->rank(), half->size() - 1 - comm.rank() / 2);
    const auto members = all_gather_values(*half, comm.rank(), "members");
    for (int r = 0; r < half->size(); ++r)
      EXPECT_EQ(members[static_cast<size_t>(r)], (half->size() - 1 - r) * 2 + parity);
    auto none = comm.split(comm.rank() == 0 ? 0 : -1, 0, "one");
    EXPECT_EQ(none != nullptr, comm.rank() == 0);
    // Halves of halves, while the parent goes on.
    auto again = half->split(0, half->rank(), "again");
    EXPECT_EQ(all_gather_values(*again, 1, "ones").size(), static_cast<size_t>(half->size()));
    EXPECT_EQ(all_gather_values(comm, comm.rank(), "all").size(), static_cast<size_t>(comm.size()));
  });
}

TEST(Comm, ChannelsAreIndependent) {
  on_ranks([](Communicator& comm) {
    auto a = comm.split(0, comm.rank(), "a"), b = comm.split(0, comm.rank(), "b");
    const Tensor x = values_of(comm.rank(), 1000, DType::kFloat32), y = values_of(comm.rank(), 1000, DType::kFloat32);
    for (int k = 0; k < 5; ++k) {
      raw::copy(x, values_of(comm.rank(), 1000, DType::kFloat32));
      raw::copy(y, x);
      // Half of the ranks begin with a, the others with b: one queue for both would never end.
      Work wx, wy;
      if (comm.rank() % 2 == 0) wx = a->all_reduce(x, ReduceOp::kSum, "x");
      wy = b->all_reduce(y, ReduceOp::kMax, "y");
      if (comm.rank() % 2 != 0) {
        wy.wait();
        wx = a->all_reduce(x, ReduceOp::kSum, "x");
      }
      wx.wait();
      wy.wait();
      expect_elements(x, "x", [&](int64_t i) { return reduced(ReduceOp::kSum, comm.size(), i); });
      expect_elements(y, "y", [&](int64_t i) { return reduced(ReduceOp::kMax, comm.size(), i); });
    }
  });
}

TEST(Comm, CallsFollowTheCurrentStreamAndWorkOrdersIt) {
  on_ranks([](Communicator& comm) {
    const int64_t n = 20'000;
    const Tensor x = Tensor::zeros({n}), y = Tensor::zeros({n});
    for (int k = 1; k <= 3; ++k) {
      current_stream().enqueue([](Parallel&) { std::this_thread::sleep_for(std::chrono::milliseconds(5)); });
      raw::fill(x, k + comm.rank());
      const Work work = comm.all_reduce(x, ReduceOp::kMax, "x");
      work.wait();
      raw::pointwise(PointwiseOp::kAffine, {y}, {x}, 2, 1);  // 2 x + 1
      raw::fill(x, -1);
      expect_elements(y, "y", [&](int64_t) { return 2.0 * (k + comm.size() - 1) + 1; });
      EXPECT_TRUE(work.done());
    }
  });
}

// The last owner of a tensor may go while its work is under way, and while kernels that read it are still queued.
TEST(Comm, MemoryLivesAsLongAsItsWork) {
  on_ranks([](Communicator& comm) {
    auto sleep = [](int ms) { std::this_thread::sleep_for(std::chrono::milliseconds(ms)); };
    const int64_t n = 5000;
    const Tensor sum = Tensor::zeros({n});
    for (int k = 0; k < 3; ++k) {
      Tensor x = Tensor::full({n}, 1);
      comm.all_reduce(x, ReduceOp::kSum, "x").wait();
      current_stream().enqueue([=](Parallel&) { sleep(10); });
      raw::add(sum, sum, x);
      x = Tensor();
      sleep(4);                                                   // the reduction is over, the addition is not
      float* other = static_cast<float*>(allocate_bytes(n * 4));  // the same block, if it was freed too early
      std::fill_n(other, n, -100.0f);
      free_bytes(other);
    }
    expect_elements(sum, "sum", [&](int64_t) { return 3.0 * comm.size(); });
  });
}

TEST(Comm, TextsAndValues) {
  on_ranks([](Communicator& comm) {
    const auto texts = all_gather_text(comm, std::string(static_cast<size_t>(comm.rank() * 3), 'x'), "texts");
    for (size_t r = 0; r < texts.size(); ++r) EXPECT_EQ(texts[r], std::string(r * 3, 'x'));
    EXPECT_EQ(broadcast_text(comm, comm.rank() == comm.size() - 1 ? "said" : "", comm.size() - 1, "text"), "said");
    EXPECT_EQ(broadcast_text(comm, "", 0, "empty"), "");
    const auto values = all_gather_values(comm, comm.rank() * 10, "values");
    for (size_t r = 0; r < values.size(); ++r) EXPECT_EQ(values[r], static_cast<int64_t>(r) * 10);
  });
}

TEST(Comm, RefusedArgumentsLeaveItUsable) {
  on_ranks([](Communicator& comm) {
    const Tensor x = Tensor::zeros({10});
    const std::vector<int64_t> wrong(static_cast<size_t>(comm.size()), 7);
    EXPECT_THROW(comm.all_gather(x, x, wrong, "x"), Error);
    EXPECT_THROW(comm.reduce_scatter(x, x, {}, ReduceOp::kSum, "x"), Error);
    EXPECT_THROW(comm.broadcast(x, comm.size(), "x"), Error);
    EXPECT_THROW(comm.send(x, -1, "x"), Error);
    EXPECT_THROW(comm.all_reduce(Tensor(), ReduceOp::kSum, "x"), Error);
    EXPECT_THROW(comm.all_reduce(Tensor::zeros({4, 4}).transpose(0, 1), ReduceOp::kSum, "x"), Error);
    comm.barrier("still here");
    EXPECT_EQ(all_gather_values(comm, 5, "x")[0], 5);
  });
}

// What this rank sends, by the convention of wire_bytes; equal on every backend, and on one that has no peers.
int64_t sent_by(Communicator& comm, const std::function<void()>& calls) {
  const int64_t before = comm.bytes_sent();
  calls();
  return comm.bytes_sent() - before;
}

TEST(Comm, CountsWhatItSends) {
  on_ranks([](Communicator& comm) {
    const int size = comm.size(), rank = comm.rank();
    const int64_t others = size - 1;
    const std::vector<int64_t> counts = uneven_counts(size, 10);
    const int64_t whole = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const int64_t mine = counts[static_cast<size_t>(rank)];
    const Tensor t = Tensor::zeros({60}), all = Tensor::zeros({whole}), part = Tensor::zeros({mine});
    EXPECT_EQ(sent_by(comm, [&] { comm.all_reduce(t, ReduceOp::kSum, "x").wait(); }), 4 * 2 * 60 * others / size);
    EXPECT_EQ(sent_by(comm, [&] { comm.all_gather(all, part, counts, "x").wait(); }), 4 * mine * others);
    EXPECT_EQ(sent_by(comm, [&] { comm.reduce_scatter(part, all, counts, ReduceOp::kSum, "x").wait(); }),
              4 * (whole - mine));
    EXPECT_EQ(sent_by(comm, [&] { comm.broadcast(t, size - 1, "x").wait(); }), rank == size - 1 ? 4 * 60 * others : 0);
    // Two elements to each rank.
    std::vector<int64_t> two(static_cast<size_t>(size), 2);
    const Tensor out = Tensor::zeros({2 * size}), in = Tensor::zeros({2 * size});
    EXPECT_EQ(sent_by(comm, [&] { comm.all_to_all(out, two, offsets_of(two), in, two, offsets_of(two), "x").wait(); }),
              4 * 2 * others);
    EXPECT_EQ(sent_by(comm, [&] { comm.barrier("x"); }), 0);
    if (size > 1) {
      const Tensor halves = raw::cast(t, DType::kBFloat16);
      EXPECT_EQ(sent_by(comm,
                        [&] {
                          comm.send(halves, (rank + 1) % size, "x");
                          comm.receive(Tensor::empty({60}, DType::kBFloat16), (rank + others) % size, "x").wait();
                        }),
                2 * 60);
    }
    // A part's traffic counts in the whole, not the other way round.
    const auto pair = comm.split(rank / 2, rank, "pairs");
    const int64_t of_pair = sent_by(comm, [&] { pair->all_reduce(t, ReduceOp::kSum, "x").wait(); });
    EXPECT_EQ(of_pair, 4 * 2 * 60 * (pair->size() - 1) / pair->size());
    EXPECT_EQ(pair->bytes_sent(), of_pair);
    EXPECT_EQ(sent_by(*pair, [&] { comm.all_reduce(t, ReduceOp::kSum, "x").wait(); }), 0);
    if (rank == 0) {  // a refused call sends nothing
      const int64_t before = comm.bytes_sent();
      EXPECT_THROW(comm.broadcast(t, size, "x"), Error);
      EXPECT_EQ(comm.bytes_sent(), before);
    }
  });
}

}  // namespace
}  // namespace lockstep::testing
