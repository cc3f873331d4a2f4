// The job of a scheduler that a run directory belongs to: RUN/job holds its script, its id and its output.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/batch.h"

namespace lockstep {

struct SubmittedJob {
  std::string scheduler, id;
};

std::string job_folder(const std::string& run_dir);  // RUN/job, absolute
// Nothing if the run was not submitted. Throws ExitCode::kBadData where the id is none.
std::optional<SubmittedJob> submitted_job(const std::string& run_dir);
void keep_submitted_job(const std::string& run_dir, const SubmittedJob& job);
// The ids of points of a sweep that were submitted to PBS again, each by itself.
std::vector<std::string> further_jobs(const std::string& run_dir);
// The newest output of the job; empty if there is none yet.
std::string job_output(const std::string& run_dir);

}  // namespace lockstep
