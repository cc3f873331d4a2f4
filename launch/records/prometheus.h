// What is known of runs, in Prometheus's text format (0.0.4): for its scraping (lockstep launch --metrics-port) and for
// node_exporter's textfile collector (lockstep status --prometheus). A plain function.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "launch/records/run_status.h"

namespace lockstep {

// Gauges with the label run="DIRECTORY", and of ranks under a launcher rank and host: lockstep_up, lockstep_step,
// lockstep_steps_planned, lockstep_checkpoint_age_seconds, lockstep_rank_step_seconds and so on; every number of the
// last line of metrics.jsonl as lockstep_KEY, in seconds and bytes, what follows a '/' of the key as the label name.
std::string prometheus_text(const std::vector<std::pair<std::string, RunStatus>>& runs);

}  // namespace lockstep
