// Scores of a model on tasks of lm-evaluation-harness, by the passes that evaluations share. Plain values and
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tasks/task.h"
#include "launch/scoring/asked_task.h"
#include "launch/training/evaluation/evaluate.h"
#include "sharding/data_parallel.h"

namespace lockstep {

// The scores of all requests, in their order; on ranks but the first none. The same bits at every number of ranks and
// sharding level. Collective, outside of steps.
std::vector<TokensScore> score_requests(Task& task, DataParallel& parallel, const ScoreRequests& requests,
                                        const EvalOptions& options);

// The tasks of train.eval_tasks, which a run's evaluations measure beside its loss.
class TaskScores {
 public:
  // Throws ExitCode::kConfig for a task that continues texts, which a model that is distributed does not; where the
  // data's vocabulary is not known; and what asked_task() and requests_of() throw.
  // `around`: the special tokens around texts.
  TaskScores(const std::vector<std::string>& paths, const Vocabulary* vocabulary, const Surround& around,
             int64_t context, int64_t classes);
  // How texts are encoded, such as "<s>TEXT"; empty: without special tokens, or there are no tasks.
  const std::string& texts() const { return texts_; }
  // The names of what it measures: TASK/METRIC.
  std::vector<std::string> names() const;
  // Whether a higher value is better; nothing where there is no metric of this name.
  std::optional<bool> higher_is_better(const std::string& name) const;
  // All of them, on every rank. Collective, outside of steps.
  std::vector<std::pair<std::string, double>> measure(Task& task, DataParallel& parallel,
                                                      const EvalOptions& options) const;

 private:
  std::vector<AskedTask> tasks_;
  std::string texts_;
  std::vector<AskedRequests> asked_;
  std::vector<std::shared_ptr<const ScoreRequests>> requests_;  // of each task
};

}  // namespace lockstep
