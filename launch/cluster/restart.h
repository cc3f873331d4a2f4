// Whether and how a job that failed comes back.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/cluster/attempt.h"
#include "launch/cluster/hosts.h"

namespace lockstep {

class RestartPolicy {
 public:
  explicit RestartPolicy(int64_t most) : left_(most) {}

  struct Decision {
    bool again = false;
    std::string why_not;  // says why, where that is not plain: "" if no restarts were asked for
    double pause_s = 0;
  };
  // After an attempt that ended with `code` when `last_step` was the last one done. `equal_step`: where replicas were
  // found to differ, the last step after which they were equal; -1: not known.
  Decision decide(ExitCode code, int64_t last_step, int64_t equal_step);

 private:
  int64_t left_;
  int64_t last_step_ = -1;
  int without_progress_ = 0;
};

// The hosts that are left, each with its slots.
std::vector<Host> without(const std::vector<Host>& hosts, const std::set<std::string>& lost);

}  // namespace lockstep
