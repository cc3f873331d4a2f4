// A small training run on the ranks of a test: model, optimizer and a loop of their own over made-up samples.
// Owned by each test.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/models/model.h"
#include "core/nn/recompute.h"
#include "sharding/data_parallel.h"
#include "sharding/transfer_log.h"
#include "tests/support/run_ranks.h"

namespace lockstep::testing {

struct Job {
  std::function<std::unique_ptr<Model>()> make;
  // Summed loss of samples [begin, end) in a step, and how many targets counted.
  std::function<std::pair<Tensor, int64_t>(Model&, int64_t step, int64_t begin, int64_t end)> loss;
  int64_t steps = 3, batch = 13, micro_count = 4;
  int64_t nominal_targets = 13;
  double clip = 0;
  DataParallelOptions parallel = {};
  std::string optimizer = "adamw";
  Recompute recompute = Recompute::kNone;
  // Where to go on: what `Outcome::state` of an earlier run holds after its steps.
  int64_t first_step = 0;
  std::map<std::string, std::vector<float>> state = {};
  double loss_scale = 1;
  bool copies = true;  // the optimizer writes the copies that slots ask for
};

struct Outcome {
  std::string digest;  // of parameters and moments, of all ranks together
  std::vector<StepResult> steps;
  std::vector<int> unused;
  std::vector<float> parameters;
  std::map<std::string, std::vector<float>> state;  // parameters and moments, whole
  bool overlapped = false;                          // in every step some group left before backward ended
  std::vector<Transfer> transfers;                  // of the last step
  struct Held {
    std::string name;
    int64_t whole, offset;  // elements
    std::vector<float> values;
  };
  std::vector<Held> held;  // this rank's slices
};

// What each rank ended with.
std::vector<Outcome> train(const Job& job, int ranks, const RankOptions& options = {});

// The digest that all ranks agree on; fails the running test where they do not, in digest or in any step's result.
std::string agreed_digest(const Job& job, int ranks, const RankOptions& options = {});

Job mlp_job();  // odd widths
Job gpt_job();  // tied head, dropout, ignored targets
Job odd_job();  // tied, frozen, scalar, odd-sized parameters, and some that only some micro-batches use

}  // namespace lockstep::testing
