// Training on one GPU that 1, 2 and 4 ranks share: one digest at every level of sharding, and in every
// precision.
#include "core/kernels/kernels.h"
#include "core/models/gpt.h"
#include "tests/gpu/gpu.h"
#include "tests/sharding/each_job.h"

namespace lockstep {
namespace {

using namespace testing;

void one_digest(const NamedJob& named, bool every_level, const std::function<void(Job&)>& change) {
  std::string first;
  for (int ranks : {1, 2, 4})
    for (ShardLevel level : kShardLevels) {
      if (!every_level && level != ShardLevel::kNone && level != ShardLevel::kParameters) continue;
      Job job = named.make();
      change(job);
      job.parallel.level = level;
      const std::string digest = agreed_digest(job, ranks, {.device = gpu_device()});
      if (first.empty()) first = digest;
      EXPECT_EQ(digest, first) << named.name << ", " << ranks << " ranks, level " << to_text(level);
    }
  if (!gpu_is_fake()) return;
  Job job = named.make();
  change(job);
  EXPECT_EQ(first, agreed_digest(job, 1)) << "the CPU's";
}

class EachJob : public testing::EachJob {};
INSTANTIATE_TEST_SUITE_P(Jobs, EachJob, testing::each_job(), testing::job_name);

TEST_P(EachJob, HasOneDigestOnTheGpu) {
  for (const DType compute : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    SCOPED_TRACE(to_text(compute));
    one_digest(GetParam(), compute == DType::kFloat32, [&](Job& job) {
      job.parallel.compute = compute;
      if (compute == DType::kFloat16) job.loss_scale = 64;
    });
  }
}

TEST_P(EachJob, HasOneDigestOnTheGpuWithBf16Sums) {
  one_digest(GetParam(), false, [](Job& job) {
    job.parallel.compute = DType::kBFloat16;
    job.parallel.reduce_dtype = DType::kBFloat16;
  });
}

TEST_P(EachJob, HasOneDigestOnTheGpuWithMomentsInCodes) {
  one_digest(GetParam(), false, [](Job& job) { job.optimizer = "adamw8bit"; });
}

// Widths that cuDNN takes: heads of 64, and products with biases.
Job wide_job() {
  Job job = gpt_job();
  job.make = [] { return std::make_unique<Gpt>(GptOptions{.layers = 1, .heads = 4, .width = 256}, TaskSpec{{6}, 11}); };
  return job;
}

TEST(WideJob, HasOneDigestOnTheGpuInBf16) {
  one_digest({"wide", wide_job}, false, [](Job& job) { job.parallel.compute = DType::kBFloat16; });
}

}  // namespace
}  // namespace lockstep
