// What this machine can do at most: fp32 multiply-adds and copy bandwidth, on one thread and on all; and how much of
// the time it takes its threads away, which a guest of a busy host cannot see otherwise; one JSON line. The benchmark's
// yardstick.
#include <immintrin.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

#include "core/device/thread_pool.h"
#include "core/kernels/kernels.h"

namespace {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point t) { return std::chrono::duration<double>(Clock::now() - t).count(); }

constexpr int kChains = 12;  // independent, so that latency is hidden
constexpr int64_t kRounds = 20'000'000;

__attribute__((target("avx512f"))) double fma_avx512() {
  __m512 acc[kChains], a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(1e-3f);
  for (auto& v : acc) v = _mm512_set1_ps(1.0f);
  for (int64_t i = 0; i < kRounds; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) acc[c] = _mm512_fmadd_ps(acc[c], a, b);
  float sum = 0;
  for (auto& v : acc) sum += v[0] + v[15];
  return sum;
}
__attribute__((target("avx2,fma"))) double fma_avx2() {
  __m256 acc[kChains], a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(1e-3f);
  for (auto& v : acc) v = _mm256_set1_ps(1.0f);
  for (int64_t i = 0; i < kRounds; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) acc[c] = _mm256_fmadd_ps(acc[c], a, b);
  float sum = 0;
  for (auto& v : acc) sum += v[0] + v[7];
  return sum;
}
double multiply_add_sse() {
  __m128 acc[kChains], a = _mm_set1_ps(0.999f), b = _mm_set1_ps(1e-3f);
  for (auto& v : acc) v = _mm_set1_ps(1.0f);
  for (int64_t i = 0; i < kRounds; ++i)
#pragma GCC unroll 12
    for (int c = 0; c < kChains; ++c) acc[c] = _mm_add_ps(_mm_mul_ps(acc[c], a), b);
  float sum = 0;
  for (auto& v : acc) sum += v[0] + v[3];
  return sum;
}

volatile double sink;

template <class F>
double on_threads(int threads, F f) {  // seconds until all are done
  const auto begin = Clock::now();
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) all.emplace_back(f, t);
  for (auto& t : all) t.join();
  return seconds_since(begin);
}

double peak_gflops(int threads) {
  const auto level = lockstep::best_isa_level();
  const int lanes = level >= lockstep::IsaLevel::kAvx512 ? 16 : level == lockstep::IsaLevel::kAvx2 ? 8 : 4;
  double best = 0;
  for (int round = 0; round < 3; ++round) {
    const double s = on_threads(threads, [&](int) {
      sink = level >= lockstep::IsaLevel::kAvx512 ? fma_avx512()
             : level == lockstep::IsaLevel::kAvx2 ? fma_avx2()
                                                  : multiply_add_sse();
    });
    const double gflops = 2.0 * kChains * lanes * kRounds * threads / s / 1e9;
    if (gflops > best) best = gflops;
  }
  return best;
}

double copy_gbps(int threads) {  // bytes read and written
  constexpr size_t kBytes = size_t(128) << 20;
  std::vector<std::vector<char>> from(static_cast<size_t>(threads), std::vector<char>(kBytes, 1)), to = from;
  double best = 0;
  for (int round = 0; round < 4; ++round) {
    const double s = on_threads(threads, [&](int t) {
      std::memcpy(to[static_cast<size_t>(t)].data(), from[static_cast<size_t>(t)].data(), kBytes);
    });
    const double gbps = 2.0 * static_cast<double>(kBytes) * threads / s / 1e9;
    if (gbps > best) best = gbps;
  }
  return best;
}

// First touch of fresh memory, which a large model's first step cannot avoid.
double first_touch_gbps() {
  constexpr size_t kBytes = size_t(512) << 20;
  const auto begin = Clock::now();
  std::vector<char> fresh(kBytes);
  return static_cast<double>(kBytes) / seconds_since(begin) / 1e9;
}

struct Gaps {
  double share, longest;  // of the time of all threads; seconds
};

// Threads that do nothing but read the clock, one for each core: where it jumps, theirs did not run.
Gaps gaps(int threads) {
  constexpr double kSeconds = 1, kLeast = 20e-6;
  std::vector<Gaps> of_threads(static_cast<size_t>(threads));
  on_threads(threads, [&](int t) {
    Gaps& mine = of_threads[static_cast<size_t>(t)];
    const auto begin = Clock::now();
    for (double before = 0, now; before < kSeconds; before = now) {
      now = seconds_since(begin);
      if (const double gap = now - before; gap > kLeast) mine.share += gap, mine.longest = std::max(mine.longest, gap);
    }
  });
  Gaps all{};
  for (const Gaps& g : of_threads) {
    all.share += g.share / kSeconds / threads;
    all.longest = std::max(all.longest, g.longest);
  }
  return all;
}

}  // namespace

int main() {
  const int all = lockstep::available_cores();
  const Gaps taken = gaps(all);
  std::printf(
      "{\"cores\":%d,\"isa\":\"%s\",\"fma_gflops_1\":%.1f,\"fma_gflops\":%.1f,\"copy_gbps_1\":%.1f,\"copy_gbps\":%.1f,"
      "\"first_touch_gbps\":%.2f,\"taken_percent\":%.1f,\"longest_gap_ms\":%.2f}\n",
      all, lockstep::kernels(lockstep::best_isa_level()).isa, peak_gflops(1), peak_gflops(all), copy_gbps(1),
      copy_gbps(all), first_touch_gbps(), 100 * taken.share, 1e3 * taken.longest);
}
