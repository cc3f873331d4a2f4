#include "launch/cluster/submitted.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <sstream>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/io/files.h"

namespace lockstep {

namespace fs = std::filesystem;

std::string job_folder(const std::string& run_dir) {
  return (fs::absolute(run_dir) / "job").lexically_normal().string();
}

std::optional<SubmittedJob> submitted_job(const std::string& run_dir) {
  SubmittedJob job;
  job.scheduler = read_head(job_folder(run_dir) + "/scheduler", 64);
  job.id = read_head(job_folder(run_dir) + "/job", 256);
  for (std::string* s : {&job.scheduler, &job.id}) *s = s->substr(0, s->find('\n'));
  const std::string& path = job_folder(run_dir);
  require(job.id.empty() || is_job_id(job.id), ExitCode::kBadData, path, "/job: '", escaped(job.id, Lines::kEscape),
          "' is no job's number: it is not handed to a scheduler");
  if (job.id.empty() || (job.scheduler != "slurm" && job.scheduler != "pbs")) return {};
  return job;
}

void keep_submitted_job(const std::string& run_dir, const SubmittedJob& job) {
  replace_file(job_folder(run_dir) + "/scheduler", job.scheduler + "\n");
  replace_file(job_folder(run_dir) + "/job", job.id + "\n");
}

std::vector<std::string> further_jobs(const std::string& run_dir) {
  std::vector<std::string> out;
  std::istringstream lines(read_head(job_folder(run_dir) + "/more_jobs", 1 << 20));
  for (std::string id; std::getline(lines, id);)
    if (is_job_id(id)) out.push_back(id);
  return out;
}

std::string job_output(const std::string& run_dir) {
  std::error_code ignored;
  std::string newest;
  fs::file_time_type time;
  for (const auto& entry : fs::directory_iterator(job_folder(run_dir), ignored)) {
    if (entry.path().extension() != ".log") continue;
    const auto written = entry.last_write_time(ignored);
    if (newest.empty() || written > time) newest = entry.path().string(), time = written;
  }
  return newest;
}

}  // namespace lockstep
