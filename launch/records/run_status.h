// What a run directory says of its run, from outside and at any time: for `lockstep status`, `top`, `logs` and
// `cancel`.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/io/json.h"

namespace lockstep {

struct RunStatus {
  std::string state;    // "no run", "queued", "running", "stopped", "finished", "failed"
  int64_t process = 0;  // that holds the lock: rank 0; 0: none
  std::string host;     // of that process
  int64_t step = 0, total = 0;
  double loss = 0, rate = 0, step_ms = 0;
  double goodput = -1;          // negative: not known
  std::string rate_unit;        // "tokens"
  double validation_loss = -1;  // the last one; negative: none
  int64_t validation_step = 0;
  std::string checkpoint;  // the newest; empty: none
  double checkpoint_age_s = 0, metrics_age_s = 0;
  int64_t failure_code = 0;  // of failure.json
  std::string failure;
  JsonObject last_line;           // of metrics.jsonl
  std::vector<double> losses;     // of the last steps, oldest first
  JsonObject launcher;            // pid, host, attempt; empty: none is running
  std::vector<JsonObject> ranks;  // as the launcher saw them last
};

// Throws ExitCode::kMissingInput if there is no such directory.
RunStatus read_run_status(const std::string& dir, size_t losses = 512);

// What a launcher writes once a second, and removes at its end.
std::string ranks_path(const std::string& dir);
void write_ranks(const std::string& dir, const std::vector<JsonObject>& lines);

}  // namespace lockstep
