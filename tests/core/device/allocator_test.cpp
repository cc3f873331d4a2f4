// The caching allocator: blocks come back, merge, and a steady state asks the system for nothing.
#include "core/device/allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "core/base/philox.h"
#include "core/base/trace.h"
#include "core/device/context.h"
#include "core/device/memory_peak.h"
#include "core/models/gpt.h"
#include "core/ops/ops.h"
#include "tests/support/sanitized.h"

namespace lockstep::allocator_test {
namespace {

constexpr bool kCaching = !testing::kSanitized;  // with a sanitizer every block is the system's
const char* const kNoCache = "with a sanitizer every block is the system's";

TEST(Allocator, BlocksAreAlignedDisjointAndKeepTheirBytes) {
  struct Held {
    int64_t bytes;
    unsigned char mark;
  };
  std::map<unsigned char*, Held> held;
  const AllocatorStats before = allocator_stats();
  int64_t expected = 0;
  auto drop = [&](std::map<unsigned char*, Held>::iterator it) {
    for (int64_t i = 0; i < it->second.bytes; i += 97) ASSERT_EQ(it->first[i], it->second.mark);
    ASSERT_EQ(it->first[it->second.bytes - 1], it->second.mark);
    expected -= (it->second.bytes + 255) / 256 * 256;
    free_bytes(it->first);
    held.erase(it);
  };
  for (uint64_t i = 0; i < 4000; ++i) {
    const Philox4 r = philox(1, i, 0);
    if (r.v[0] % 5 < 3) {
      const int64_t bytes = 1 + static_cast<int64_t>(r.v[1] % (r.v[2] % 20 == 0 ? 3000000 : 5000));
      auto* p = static_cast<unsigned char*>(allocate_bytes(bytes));
      ASSERT_EQ(reinterpret_cast<uintptr_t>(p) % 256, 0u);
      memset(p, static_cast<int>(i % 251), static_cast<size_t>(bytes));
      held[p] = {bytes, static_cast<unsigned char>(i % 251)};
      expected += (bytes + 255) / 256 * 256;
    } else if (!held.empty()) {
      drop(std::next(held.begin(), static_cast<int64_t>(r.v[1] % held.size())));
    }
    ASSERT_EQ(allocator_stats().bytes_in_use - before.bytes_in_use, expected);
  }
  while (!held.empty()) drop(held.begin());
  EXPECT_EQ(allocator_stats().bytes_in_use, before.bytes_in_use);
}

TEST(Allocator, FreedNeighboursMergeIntoOneBlock) {
  if (!kCaching) GTEST_SKIP() << kNoCache;
  const int64_t part = 1 << 20;
  std::vector<void*> parts;
  for (int i = 0; i < 40; ++i) parts.push_back(allocate_bytes(part));
  const AllocatorStats before = allocator_stats();
  for (size_t i = 0; i < parts.size(); i += 2) free_bytes(parts[i]);  // holes first
  for (size_t i = 1; i < parts.size(); i += 2) free_bytes(parts[i]);
  void* whole = allocate_bytes(40 * part);
  EXPECT_EQ(allocator_stats().system_allocations, before.system_allocations) << "the merged block was large enough";
  free_bytes(whole);
}

TEST(Allocator, TheNewestOfEqualBlocksIsTakenFirst) {
  if (!kCaching) GTEST_SKIP() << kNoCache;
  void *a = allocate_bytes(4096), *wall = allocate_bytes(256), *b = allocate_bytes(4096), *end = allocate_bytes(256);
  free_bytes(a);
  free_bytes(b);
  void* again = allocate_bytes(4096);
  EXPECT_EQ(again, b) << "still in cache";
  for (void* p : {again, wall, end}) free_bytes(p);
}

TEST(Allocator, PeakIsTheMostInUseSinceItWasReset) {
  reset_peak_bytes();
  const int64_t base = allocator_stats().bytes_in_use;
  void* p = allocate_bytes(1 << 20);
  free_bytes(p);
  EXPECT_EQ(allocator_stats().peak_bytes, base + (1 << 20));
  reset_peak_bytes();
  EXPECT_EQ(allocator_stats().peak_bytes, base);
}

const MemoryShare* share_of(const MemoryPeak& peak, MemoryUse use, const std::string& whom) {
  for (const MemoryShare& s : peak.shares)
    if (s.use == use && s.whom == whom) return &s;
  return nullptr;
}
int64_t sum_of(const MemoryPeak& peak) {
  int64_t sum = 0;
  for (const MemoryShare& s : peak.shares) sum += s.bytes;
  return sum;
}

TEST(Allocator, ThePeakKeepsWhatWasHeldThen) {
  const int64_t mb = 1 << 20;
  reset_peak_bytes();
  take_memory_peak();
  std::string name = "blocks.1.up";
  const auto held_for = [&](const char* whom, int64_t bytes, MemoryUse use = MemoryUse::kActivations) {
    const WithMemoryFor named(whom);
    return allocate_bytes(bytes, {}, use);
  };
  void *first, *inner;
  {
    const WithMemoryFor named(name);
    first = allocate_bytes(3 * mb);
  }
  name = "overwritten";  // names are copied
  void* weights = held_for("head", 2 * mb, MemoryUse::kParameters);
  {
    const TraceOp op("matmul", true);
    inner = held_for("blocks.2.up", 4 * mb);
  }
  MemoryPeak peak = memory_peak();
  EXPECT_EQ(peak.bytes, allocator_stats().peak_bytes);
  free_bytes(inner);
  free_bytes(first);
  void* late = held_for("late", mb);  // below the peak
  for (const MemoryPeak& p : {peak, memory_peak(), take_memory_peak()}) {
    EXPECT_EQ(p.bytes, allocator_stats().peak_bytes);
    EXPECT_EQ(sum_of(p), p.bytes);
    EXPECT_EQ(p.whom, "blocks.2.up");
    EXPECT_EQ(p.op, "matmul");
    EXPECT_TRUE(p.backward);
    ASSERT_TRUE(share_of(p, MemoryUse::kActivations, "blocks.1.up"));
    EXPECT_EQ(share_of(p, MemoryUse::kActivations, "blocks.1.up")->bytes, 3 * mb);
    EXPECT_EQ(share_of(p, MemoryUse::kActivations, "blocks.2.up")->bytes, 4 * mb);
    EXPECT_EQ(share_of(p, MemoryUse::kParameters, "head")->bytes, 2 * mb);
    EXPECT_FALSE(share_of(p, MemoryUse::kActivations, "late"));
    EXPECT_FALSE(share_of(p, MemoryUse::kActivations, "overwritten"));
  }
  // The one that is taken begins again, the other one goes on.
  EXPECT_TRUE(share_of(take_memory_peak(), MemoryUse::kActivations, "late"));
  EXPECT_EQ(take_memory_peak().bytes, allocator_stats().bytes_in_use);
  EXPECT_FALSE(share_of(memory_peak(), MemoryUse::kActivations, "late"));
  free_bytes(late);
  free_bytes(weights);
}

TEST(Allocator, WhatIsAllocatedWithoutPeakIsInNone) {
  reset_peak_bytes();
  take_memory_peak();
  const int64_t base = allocator_stats().bytes_in_use;
  void* kept = nullptr;
  {
    const WithoutMemoryPeak quiet{Device()};
    free_bytes(allocate_bytes(8 << 20));
    kept = allocate_bytes(1 << 20);
  }
  EXPECT_EQ(allocator_stats().peak_bytes, base);
  EXPECT_EQ(sum_of(memory_peak()), base) << "and its shares are of what was held then";
  EXPECT_EQ(take_memory_peak().bytes, base);
  free_bytes(allocate_bytes(256));
  EXPECT_EQ(allocator_stats().peak_bytes, base + (1 << 20) + 256) << "what is still held counts";
  free_bytes(kept);
}

TEST(Allocator, ThePeaksTextFoldsModulesThatDifferInANumber) {
  using enum MemoryUse;
  const MemoryPeak peak{100,
                        "blocks.7",
                        "matmul",
                        true,
                        {{kParameters, "blocks.0.w .. blocks.1.w", 30},
                         {kActivations, "blocks.0.up", 20},
                         {kActivations, "blocks.3.down", 20},
                         {kActivations, "head", 19},
                         {kActivations, "tiny", 1},
                         {kActivations, "", 9},
                         {kBatches, "", 1}}};
  EXPECT_EQ(peak_text(peak),
            "in the backward pass of blocks.7 (matmul): activations 69% (blocks.0-3 40%, head 19%), "
            "parameters 30% (blocks.0.w .. blocks.1.w 30%)");
  EXPECT_EQ(peak_text({100, "a copy", "", false, {{kInHost, "a copy", 100}}}),
            "for a copy: in_host 100% (a copy 100%)");
  EXPECT_EQ(peak_text({}), "");
}

TEST(Allocator, WhatIsInUseIsSampledWhereAskedFor) {
  free_bytes(allocate_bytes(1 << 20));
  reset_peak_bytes();
  sample_memory({}, true);
  const int64_t before = allocator_stats().in_use(MemoryUse::kMoments);
  void* p = allocate_bytes(64 << 20, {}, MemoryUse::kMoments);
  free_bytes(p);
  const std::vector<MemorySample> samples = take_memory_samples();
  sample_memory({}, false);
  free_bytes(allocate_bytes(64 << 20));
  EXPECT_TRUE(take_memory_samples().empty());
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].by_use[static_cast<size_t>(MemoryUse::kMoments)], before + (64 << 20));
  EXPECT_EQ(samples[1].by_use[static_cast<size_t>(MemoryUse::kMoments)], before);
  EXPECT_LE(samples[0].time_ns, samples[1].time_ns);
}

TEST(Allocator, MoreThanThereIsIsAnErrorThatSaysHowMuch) {
  if (!kCaching) GTEST_SKIP() << kNoCache;
  try {
    allocate_bytes(int64_t(1) << 60);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("out of memory: 1152921504606846976 bytes"), std::string::npos) << e.what();
    EXPECT_NE(std::string(e.what()).find("), by module "), std::string::npos) << e.what();
  }
  free_bytes(allocate_bytes(100));  // goes on
}

TEST(Allocator, ServesManyThreads) {
  const int64_t before = allocator_stats().bytes_in_use;
  std::vector<std::thread> threads;
  for (uint64_t t = 0; t < 4; ++t)
    threads.emplace_back([t] {
      std::vector<void*> held;
      for (uint64_t i = 0; i < 3000; ++i) {
        held.push_back(allocate_bytes(1 + philox(t, i, 0).v[0] % 10000));
        if (held.size() > 20) {
          const size_t k = philox(t, i, 1).v[0] % held.size();
          free_bytes(held[k]);
          held.erase(held.begin() + static_cast<int64_t>(k));
        }
      }
      for (void* p : held) free_bytes(p);
    });
  for (auto& t : threads) t.join();
  EXPECT_EQ(allocator_stats().bytes_in_use, before);
}

// A training loop in its steady state: forward and backward of a small GPT.
TEST(Allocator, SteadyStateTakesNothingFromTheSystem) {
  if (!kCaching) GTEST_SKIP() << kNoCache;
  GptOptions options{.layers = 2, .heads = 2, .width = 32};
  Gpt model(options, {{16}, 50});
  place_parameters(model, 1);
  std::vector<int32_t> tokens(4 * 16);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<int32_t>(i * 7 % 50);
  const Tensor x = Tensor::of(tokens, {4, 16}), y = Tensor::of(tokens, {4, 16});
  AllocatorStats warm;
  for (int step = 0; step < 12; ++step) {
    if (step == 3) warm = allocator_stats();
    for (auto& p : model.parameters()) clear_grad(p.parameter->value);
    backward(cross_entropy(model(x), y));
  }
  EXPECT_EQ(allocator_stats().system_allocations, warm.system_allocations);
  EXPECT_EQ(allocator_stats().bytes_in_use, warm.bytes_in_use) << "and leaks nothing";
}

}  // namespace
}  // namespace lockstep::allocator_test
