// SimulatedTime: when the work of one rank would be done on a machine that is described by a few numbers. While one is
// set on a thread, streams of a device without bytes keep a time of their own instead of doing nothing at all: tasks
// take what they cost, and events carry the time from stream to stream, through the code that real steps run through.
#pragma once

#include <utility>

#include "core/base/trace.h"

namespace lockstep {

class SimulatedTime {
 public:
  virtual ~SimulatedTime() = default;
  virtual double seconds_of(const TaskCost& cost) const = 0;

  double now_s = 0;   // of the host and of its own stream, which runs inline
  double busy_s = 0;  // of that, what tasks took
};

inline constinit thread_local SimulatedTime* simulated_time = nullptr;  // borrowed

class WithSimulatedTime {
 public:
  explicit WithSimulatedTime(SimulatedTime& time) : before_(std::exchange(simulated_time, &time)) {}
  ~WithSimulatedTime() { simulated_time = before_; }
  WithSimulatedTime(const WithSimulatedTime&) = delete;

 private:
  SimulatedTime* before_;
};

// Is it worth while to count what a task costs?
inline bool counts_costs() { return tracing() || simulated_time != nullptr; }

}  // namespace lockstep
