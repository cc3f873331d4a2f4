// A few steps of training by several ranks that are threads, and the expectation that no layout shows in them. Plain
// functions.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/training/step/shared_data.h"
#include "launch/training/step/trainer.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {

struct TrainedRun {
  Hash128 digest;                   // of the state after the last step
  std::vector<StepReport> reports;  // rank 0's
  double validation = 0;

  std::vector<double> losses() const {
    std::vector<double> out;
    for (const StepReport& r : reports) out.push_back(r.result.loss);
    return out;
  }
};

// `look`: at rank 0's trainer before the first step (step 0) and after the last.
inline TrainedRun train_run(Settings& settings, int ranks, int64_t steps,
                            const std::function<void(const Trainer&, int64_t step)>& look = {}) {
  SharedData data(settings);
  std::vector<Hash128> digests(static_cast<size_t>(ranks));
  TrainedRun out;
  run_ranks(ranks, [&](Communicator& comm) {
    Trainer trainer(settings, data.open(comm), comm);
    const bool first = comm.rank() == 0;
    if (first && look) look(trainer, 0);
    for (int64_t i = 0; i < steps; ++i) {
      const StepReport r = trainer.step();
      if (first) out.reports.push_back(r);
    }
    digests[static_cast<size_t>(comm.rank())] = digest_of(trainer.entries_to_save());
    if (first && look) look(trainer, steps);
    const EvalReport e = trainer.evaluate();
    if (first) out.validation = e.loss;
  });
  for (const Hash128& d : digests) out.digest += d;
  return out;
}

// At 1 to 4 ranks and every shard level the same digest, losses and validation. `train`: with that many ranks and these
// keys of the configuration.
using TrainWith = std::function<TrainedRun(int ranks, const std::vector<std::string>& keys)>;
inline void expect_one_run(const TrainWith& train, const std::vector<std::string>& keys) {
  const TrainedRun one = train(1, keys);
  for (int ranks : {1, 2, 3, 4})
    for (const char* level : {"none", "optimizer", "gradients", "parameters"}) {
      std::vector<std::string> more = keys;
      more.push_back(str("sharding.level=", level));
      const TrainedRun several = train(ranks, more);
      EXPECT_EQ(several.digest, one.digest) << ranks << " ranks, " << level;
      EXPECT_EQ(several.losses(), one.losses()) << ranks << " ranks, " << level;
      EXPECT_EQ(several.validation, one.validation) << ranks << " ranks, " << level;
    }
}

}  // namespace lockstep::testing
