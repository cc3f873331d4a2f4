// Batch schedulers: a job script from a template of configs/cluster, its submission, and questions about the job.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct BatchJob {
  std::string scheduler;                // "slurm" or "pbs"
  std::string name, folder, directory;  // of the job's files; where it runs
  int nodes = 1, ranks_per_node = 1, cpus_per_rank = 1, gpus_per_node = 0;
  int64_t seconds = 3600, warning = 120;  // the time limit; how long before it the run saves
  std::vector<std::string> options;       // lines for the scheduler, such as "--partition=long"
  std::string setup;                      // shell lines before the command, such as "module load lockstep"
  std::vector<std::string> command;
  int64_t points = 0;   // of a job array; the number of the task is added to the command. 0: no array
  int64_t at_once = 0;  // tasks of the array at a time; 0: as many as there is room for
};

// "2:00:00", "1-12:00:00", "90" (minutes, as Slurm reads it) or "45:00" (minutes and seconds). Throws ExitCode::kUsage.
int64_t parse_time(const std::string& text);
std::string time_text(int64_t seconds);  // "2:00:00"

// The scheduler whose commands are installed here: "slurm", "pbs" or "".
std::string installed_scheduler();
// The script: `text` is a template; empty: the one of configs/cluster. Throws ExitCode::kUsage for a placeholder that
// is not known.
std::string job_script(const BatchJob& job, const std::string& text = {});
// Lets the scheduler check the script (Slurm; PBS has nothing of the kind), and submits it. Returns the job's id.
// Throws ExitCode::kUsage with the scheduler's own words if it refuses.
std::string submit_script(const BatchJob& job, const std::string& path);

// Whether it has the form of a scheduler's own ids: 123, 123_4, 123[], 123.server.domain.
bool is_job_id(std::string_view text);

struct JobState {
  std::string state;   // "PENDING", "RUNNING", ...; empty: the scheduler does not know the job any more
  std::string reason;  // why it waits, or the nodes that it runs on
  std::string left;    // of its time
};
JobState job_state(const std::string& scheduler, const std::string& job);
// Lets the run save and ends the job. Throws ExitCode::kUsage with the scheduler's words.
void cancel_job(const std::string& scheduler, const std::string& job);

}  // namespace lockstep
