// The pool: every item once, at any size, grain and number of threads.
#include "core/device/thread_pool.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <new>
#include <set>

#include "core/device/cpu_quota.h"
#include "core/device/stream.h"
#include "tests/support/files.h"

namespace lockstep::thread_pool_test {
namespace {

TEST(ThreadPool, RunsEveryItemOnceInPiecesOfTheGrain) {
  for (int threads : {1, 2, 3, 5}) {
    ThreadPool pool(threads);
    EXPECT_EQ(pool.threads(), threads);
    for (int64_t n : {0, 1, 2, 3, 7, 64, 65, 1000, 12345})
      for (int64_t grain : {1, 2, 10, 1000, 100000}) {
        std::vector<std::atomic<int>> hits(static_cast<size_t>(n));
        std::atomic<int> short_pieces{0};
        auto body = [&](int64_t begin, int64_t end) {
          ASSERT_LT(begin, end);
          if (end - begin < grain) ++short_pieces;
          for (int64_t i = begin; i < end; ++i) ++hits[static_cast<size_t>(i)];
        };
        pool.run(n, grain, body);
        for (auto& h : hits) ASSERT_EQ(h, 1) << n << " items, grain " << grain << ", " << threads << " threads";
        ASSERT_LE(short_pieces, 1) << "the last piece alone may be smaller";
      }
  }
}

TEST(ThreadPool, EndsAJobBeforeTheNextBegins) {
  ThreadPool pool(3);
  std::vector<int64_t> values(300, 0);
  for (int64_t round = 0; round < 2000; ++round) {
    auto body = [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        ASSERT_EQ(values[static_cast<size_t>(299 - i)] % 2, round % 2) << "sees all of the last round";
        // Each pair is written by whoever has its lower half, so that rounds cannot overlap unseen.
        if (i < 150) ++values[static_cast<size_t>(i)], ++values[static_cast<size_t>(299 - i)];
      }
    };
    pool.run(150, 1, body);
  }
  EXPECT_EQ(values, std::vector<int64_t>(300, 2000));
}

// A kernel that calls another one: its pieces run where they are.
TEST(ThreadPool, NestedUseRunsEveryItemOnce) {
  ThreadPool pool(3);
  std::vector<std::atomic<int>> hits(40 * 50);
  auto outer = [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      auto inner = [&](int64_t from, int64_t to) {
        for (int64_t j = from; j < to; ++j) ++hits[static_cast<size_t>(i * 50 + j)];
      };
      pool.run(50, 1, inner);
    }
  };
  pool.run(40, 1, outer);
  for (auto& h : hits) ASSERT_EQ(h, 1);
  // And the pool of another stream from within.
  ThreadPool other(2);
  std::atomic<int> total{0};
  auto body = [&](int64_t begin, int64_t end) { total += static_cast<int>(end - begin); };
  auto call = [&](int64_t, int64_t) { other.run(100, 1, body); };
  pool.run(1, 1, call);
  EXPECT_EQ(total, 100);
}

TEST(ThreadPool, ScratchIsAlignedOfTheThreadAndKept) {
  ThreadPool pool(3);
  std::mutex mutex;
  std::set<void*> places;
  auto body = [&](int64_t, int64_t) {
    void* p = pool.scratch(1, 1000);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(p) % 64, 0u);
    EXPECT_EQ(pool.scratch(1, 500), p) << "kept between calls";
    EXPECT_NE(pool.scratch(2, 1000), p) << "slots are independent";
    std::lock_guard lock(mutex);
    places.insert(p);
  };
  for (int i = 0; i < 50; ++i) pool.run(30, 1, body);
  EXPECT_LE(places.size(), 3u);
}

// Several pools at once, as ranks in one process have them.
TEST(ThreadPool, OfOneRankIgnoresThoseOfOthers) {
  std::vector<std::thread> ranks;
  std::atomic<int64_t> total{0};
  for (int r = 0; r < 3; ++r)
    ranks.emplace_back([&] {
      ThreadPool pool(2);
      for (int i = 0; i < 300; ++i) {
        auto body = [&](int64_t begin, int64_t end) { total += end - begin; };
        pool.run(17, 1, body);
      }
    });
  for (auto& t : ranks) t.join();
  EXPECT_EQ(total, 3 * 300 * 17);
}

// Such as for want of memory, on whichever thread.
TEST(ThreadPool, WhatAPieceThrowsIsThrownToTheCallerOnceAllAreDone) {
  ThreadPool pool(3);
  for (int i = 0; i < 50; ++i) {
    std::atomic<int64_t> done{0};
    auto body = [&](int64_t begin, int64_t end) {
      done += end - begin;
      if (begin <= 20 && 20 < end) throw std::bad_alloc();
    };
    EXPECT_THROW(pool.run(30, 1, body), std::bad_alloc);
    EXPECT_EQ(done, 30);
    auto good = [&](int64_t begin, int64_t end) { done += end - begin; };
    pool.run(30, 1, good);
    EXPECT_EQ(done, 60) << "and the pool goes on";
  }
}

TEST(FunctionRef, ACopyRefersToTheCallable) {
  using Ref = FunctionRef<int(int)>;
  auto twice = [](int x) { return 2 * x; };
  auto thrice = [](int x) { return 3 * x; };
  Ref first(twice);
  Ref copy(first);
  first = Ref(thrice);
  EXPECT_EQ(copy(7), 14);
  EXPECT_EQ(first(7), 21);
}

TEST(CpuQuota, IsTheLeastOfTheGroupsAbove) {
  const test::TemporaryFolder folder;
  const std::string root = folder / "groups", membership = root + "/membership";
  const auto put = [&](const std::string& file, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root + file).parent_path());
    std::ofstream(root + file) << text;
  };
  EXPECT_EQ(cpu_quota(membership, root), INFINITY) << "no such file";
  put("/membership", "0::/a/b\n");
  EXPECT_EQ(cpu_quota(membership, root), INFINITY);
  put("/a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(cpu_quota(membership, root), INFINITY);
  put("/a/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(membership, root), 1.5);
  put("/a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(cpu_quota(membership, root), 0.5);
  put("/membership", "11:memory:/c\n4:cpu,cpuacct:/c\n");
  EXPECT_EQ(cpu_quota(membership, root), INFINITY);
  put("/cpu/c/cpu.cfs_period_us", "100000\n");
  put("/cpu/c/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cpu_quota(membership, root), INFINITY);
  put("/cpu/c/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(cpu_quota(membership, root), 4);
  put("/membership", "nonsense\n::\n4:cpu:\n");
  EXPECT_EQ(cpu_quota(membership, root), INFINITY);
}

}  // namespace
}  // namespace lockstep::thread_pool_test
