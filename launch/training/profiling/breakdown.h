// Breakdown: what a rank's training steps spend their time on, operation by operation, from a trace
// (core/base/trace.h). Made and used by the rank's own thread; one at a time in a process.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/base/trace.h"

namespace lockstep {

// What this rank's compute threads reach, to hold the rates of operations against.
struct MachineLimits {
  double gflops = 0;  // 10^9 floating-point operations a second, in a large product of fp32 matrices
  double gbps = 0;    // 10^9 bytes a second, read and written, in a copy of more than caches hold
};
// Takes 128 MiB of memory and some tenths of a second. The current stream must be a CPU's.
MachineLimits measure_limits();

class Breakdown {
 public:
  Breakdown();   // starts the trace
  ~Breakdown();  // stops it
  Breakdown(const Breakdown&) = delete;

  void take_step();  // at the end of each step: adds what it recorded
  // Tables of the steps taken, which took `step_ms` each on average: this thread's operations, longest first, and
  // "other" (the host's work between them), which add up to the step; then what other threads did for this rank
  // meanwhile. `limits` stands below them. On a GPU there are no rates, as spans hold the host's time there.
  std::string text(double step_ms, const MachineLimits& limits) const;

 private:
  struct Sum {
    int64_t calls = 0, ns = 0, bytes = 0;
    double flops = 0;
  };
  using Sums = std::map<std::pair<std::string, bool>, Sum>;  // by name and "backward"
  std::vector<std::vector<std::string>> rows(const Sums& sums, double step_ms) const;

  Sums own_, others_;
  int64_t steps_ = 0, lost_ = 0;
};

}  // namespace lockstep
