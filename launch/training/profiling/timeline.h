// Timeline: what every thread of every rank did in some steps, and when, as a file that Perfetto (ui.perfetto.dev) and
// chrome://tracing open; `lockstep profile summary` reads it, too. The format: "Trace Event Format" (Google, 2016),
// complete events ("X") with times in microseconds, pid = rank, counters ("C") of the memory that a process holds, flow
// events ("s", "f") from the rank that came last to an exchange to those that waited for it. Owned by the Run; borrows
// the communicator.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "comm/communicator.h"
#include "core/base/trace.h"
#include "core/device/memory_peak.h"
#include "core/io/json.h"

namespace lockstep {

class Timeline {
 public:
  // Of steps [steps.first, steps.second], of at most `ranks` ranks, into `path` on rank 0, whose folder is made. All
  // ranks have one. `about`: stands in the file's "otherData".
  Timeline(Communicator& comm, std::pair<int64_t, int64_t> steps, int64_t ranks, std::string path, JsonObject about);
  ~Timeline();  // ends the trace
  Timeline(const Timeline&) = delete;

  // Around each step of the run, by all ranks; collective before the first step and after the last one.
  void before(int64_t step);
  // Returns true after the last step: the file is written then, and rank 0 says where, or warns that it is not.
  bool after(int64_t step);

 private:
  struct Exchange;
  struct Step {
    int64_t number = 0, begin_ns = 0, end_ns = 0;
  };
  void measure_clocks(const std::vector<int>& machines);
  void take();
  void stop();
  std::string events_of_rank() const;
  std::string written(const std::vector<std::string>& events) const;

  Communicator& comm_;
  const std::pair<int64_t, int64_t> steps_;
  const std::string path_;
  const JsonObject about_;
  const int64_t every_;  // of ranks that are in the file
  bool owner_ = false;   // the first of the process's ranks, which takes the spans of all
  bool on_ = false;
  int64_t offset_ns_ = 0;  // by which this rank's clock is ahead of the file's, which begins with the first step
  int64_t lost_ = 0;       // spans that a ring no longer had, or that are beyond the budget
  std::vector<Span> spans_;
  std::vector<MemorySample> samples_;  // of the process's memory
  std::vector<Step> whole_;
};

}  // namespace lockstep
