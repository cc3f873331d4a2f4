// What a timeline (launch/training/profiling/timeline.h) says, as tables and advice. Plain values and functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.h"

namespace lockstep {

// Sums over all steps; times in microseconds.
struct ProfileSums {
  struct Work {
    int64_t calls = 0;
    double us = 0, bytes = 0, flops = 0;
  };
  struct Rank {
    double step_us = 0, waited_us = 0;      // of its compute thread
    double data_us = 0, optimizer_us = 0;   // waits for batches; updates
    std::map<std::string, Work> work;       // of its compute thread, by operation
    std::map<std::string, Work> modules;    // the same by module
    std::map<std::string, Work> exchanges;  // of all threads
  };
  JsonObject about;
  int64_t steps = 0;
  std::map<int, Rank> ranks;
};

// Throws ExitCode::kBadData naming `name` for what is no timeline of lockstep.
ProfileSums read_profile(std::string_view json, const std::string& name);

// Tables: the operations of the slowest rank, its modules, exchanges, and the ranks beside each other.
std::string summary_text(const ProfileSums& sums);

// What to change, each with its reason and at most what it can gain; the largest gain first.
struct ProfileAdvice {
  std::string change;  // "precision.compute=bf16"
  std::string reason;
  double most = 0;  // part of a step
};
std::vector<ProfileAdvice> profile_advice(const ProfileSums& sums);

}  // namespace lockstep
