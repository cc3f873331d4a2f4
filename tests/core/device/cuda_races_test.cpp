// The race detector of the stand-in for CUDA (tests/support/cuda_stand_in/races.h): kernels with a planted race, and
// the same kernels without it. This file is compiled as kernels are.
#include <gtest/gtest.h>

#include "core/base/error.h"
#include "core/device/cuda/kernels/launch.h"
#include "tests/support/cuda_arrays.h"
#include "tests/support/cuda_stand_in/races.h"

namespace lockstep::cuda_races_test {
namespace {

using namespace testing;

// In place of a constant, so that the compiler keeps both branches: what a kernel leaves out.
enum class Plant { kNothing, kBarrier, kOtherBarrier, kSyncWarp };

// The sum of each block's values by its first thread, in every round anew.
void sum_of_block(int rounds, const int* values, int* sums, Plant missing) {
  __shared__ int all[96];
  for (int r = 0; r < rounds; ++r) {
    all[threadIdx.x] = values[threadIdx.x] + r;
    if (missing != Plant::kBarrier) __syncthreads();
    if (threadIdx.x == 0) {
      int sum = 0;
      for (unsigned t = 0; t < blockDim.x; ++t) sum += all[t];
      sums[blockIdx.x] = sum;
    }
    if (missing != Plant::kOtherBarrier) __syncthreads();
  }
}

// Within a warp: each lane takes its neighbour's value.
void from_neighbour(const int* values, int* out, Plant missing) {
  __shared__ int all[32];
  all[threadIdx.x] = values[threadIdx.x];
  if (missing != Plant::kSyncWarp) __syncwarp();
  out[threadIdx.x] = all[(threadIdx.x + 1) % 32];
}

// Half of a warp meets, which orders nothing for the other half.
void half_meets(const int* values, int* out, bool all_meet) {
  __shared__ int all[32];
  all[threadIdx.x] = values[threadIdx.x];
  if (all_meet) __syncwarp();
  else if (threadIdx.x < 16) __syncwarp(0xFFFFu);
  if (threadIdx.x < 16) out[threadIdx.x] = all[threadIdx.x + 16];
}

void one_element(int* out, int apart) { out[blockIdx.x * unsigned(apart)] = int(threadIdx.x); }

void reads_too_far(const int* values, int* out, unsigned written) {
  __shared__ int all[64];
  if (threadIdx.x < written) all[threadIdx.x] = values[threadIdx.x];
  __syncthreads();
  out[threadIdx.x] = all[threadIdx.x];
}

class CudaRaces : public ::testing::Test {
 protected:
  CudaRaces() { cuda_stand_in::races::enable(true); }
  ~CudaRaces() override { cuda_stand_in::races::enable(before_); }

  template <class... P, class... A>
  void expect_race(const std::string& what, void (*kernel)(P...), int64_t blocks, int threads, const A&... args) {
    try {
      launch(kernel, *queue_, blocks, threads, args...);
      ADD_FAILURE() << "not seen: " << what;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::kDevice);
    }
    EXPECT_NE(cuda_stand_in::failure().find(what), std::string::npos) << cuda_stand_in::failure();
  }
  template <class... P, class... A>
  void expect_clean(void (*kernel)(P...), int64_t blocks, int threads, const A&... args) {
    try {
      launch(kernel, *queue_, blocks, threads, args...);
    } catch (const Error&) {
      ADD_FAILURE() << cuda_stand_in::failure();
    }
  }

  std::vector<int> values_ = std::vector<int>(96, 1), out_ = std::vector<int>(96);
  std::unique_ptr<CudaQueue> queue_ = make_queue(1);

 private:
  const bool before_ = cuda_stand_in::races::enabled();
};

TEST_F(CudaRaces, AMissingBarrier) {
  expect_clean(sum_of_block, 3, 96, 4, values_.data(), out_.data(), Plant::kNothing);
  EXPECT_EQ(out_[2], 96 * 4);
  expect_race("in shared memory", sum_of_block, 1, 96, 1, values_.data(), out_.data(), Plant::kBarrier);
  expect_race("in shared memory", sum_of_block, 1, 96, 2, values_.data(), out_.data(), Plant::kOtherBarrier);
  expect_clean(sum_of_block, 1, 96, 1, values_.data(), out_.data(), Plant::kOtherBarrier);  // one round needs one
}

TEST_F(CudaRaces, AMissingMeetingOfAWarp) {
  expect_clean(from_neighbour, 1, 32, values_.data(), out_.data(), Plant::kNothing);
  expect_race("in shared memory", from_neighbour, 1, 32, values_.data(), out_.data(), Plant::kSyncWarp);
  expect_clean(half_meets, 1, 32, values_.data(), out_.data(), true);
  expect_race("in shared memory", half_meets, 1, 32, values_.data(), out_.data(), false);
}

TEST_F(CudaRaces, BlocksThatWriteOneElement) {
  expect_clean(one_element, 3, 1, out_.data(), 1);
  expect_race("in global memory: thread 0 of block 1 writes what was written by thread 0 of block 0", one_element, 3, 1,
              out_.data(), 0);
}

TEST_F(CudaRaces, SharedMemoryThatNobodyHasWritten) {
  expect_clean(reads_too_far, 1, 64, values_.data(), out_.data(), 64u);
  expect_race("reads what no thread of the block has written", reads_too_far, 1, 64, values_.data(), out_.data(), 63u);
}

}  // namespace
}  // namespace lockstep::cuda_races_test
