// MetricsWriter: writes the metrics of a run to metrics.jsonl, one JSON object per step, with unique, increasing steps.
// Owned by an observer of the run, on rank 0.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "core/io/append_file.h"
#include "core/io/json.h"

namespace lockstep {

// "metrics.jsonl" -> "metrics.earlier.jsonl": steps that were done once more, in the order in which they were left out;
// several lines may have the same step.
std::string earlier_metrics(const std::string& path);

// The step of the last whole line: 0 where there is none, nothing where there is no such file or it cannot be read.
std::optional<int64_t> last_recorded_step(const std::string& path);

class MetricsWriter {
 public:
  // Continues the file at `path` after step `keep_through`. Removes later lines (written after the checkpoint that is
  // resumed), an incomplete last line and lines that are not metrics; if there are any, the file is replaced
  // atomically. The later lines are kept beside it, in earlier_metrics(path): what earlier attempts measured.
  explicit MetricsWriter(const std::string& path, int64_t keep_through = std::numeric_limits<int64_t>::max());

  // Appends {"step":step, values...}. Steps must increase. Non-finite numbers become null. The line is dropped if the
  // disk is full.
  void write(int64_t step, const JsonObject& values);

  int64_t last_step() const { return last_step_; }    // of the last line kept or written; -1 if none
  void check_there() const { file_->check_there(); }  // see AppendFile
  int64_t dropped() const { return file_->dropped(); }

 private:
  int64_t last_step_ = -1;
  std::unique_ptr<AppendFile> file_;
};

}  // namespace lockstep
