// The caching allocator: blocks come back, merge, and a steady state asks the system for nothing.
#include "core/device/allocator.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>
#include <vector>

#include "core/base/philox.h"
#include "core/models/gpt.h"
#include "core/ops/ops.h"
#include "tests/support/sanitized.h"

namespace lockstep {
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

TEST(Allocator, MoreThanThereIsIsAnErrorThatSaysHowMuch) {
  if (!kCaching) GTEST_SKIP() << kNoCache;
  try {
    allocate_bytes(int64_t(1) << 60);
    FAIL();
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("out of memory: 1152921504606846976 bytes"), std::string::npos) << e.what();
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
}  // namespace lockstep
