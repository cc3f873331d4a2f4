// The metrics of a run: metrics.jsonl, one JSON object a step, steps unique and increasing.
// Owned by the trainer of rank 0.
#pragma once

#include <cstdint>
#include <limits>
#include <memory>
#include <string>

#include "core/io/json.h"
#include "launch/artifacts/append_file.h"

namespace lockstep {

class MetricsWriter {
 public:
  // Continues the file at `path` after step `keep_through`: later lines (written after the checkpoint that is resumed),
  // a torn last line and lines that are no metrics are dropped, by an atomic rewrite and only where there are any.
  explicit MetricsWriter(const std::string& path, int64_t keep_through = std::numeric_limits<int64_t>::max());

  // {"step":step, values...}. Steps must increase. Non-finite numbers become null. A full disk drops the line.
  void write(int64_t step, const JsonObject& values);

  int64_t last_step() const { return last_step_; }    // of the newest line kept or written; -1 for none
  void check_there() const { file_->check_there(); }  // as of AppendFile
  int64_t dropped() const { return file_->dropped(); }

 private:
  int64_t last_step_ = -1;
  std::unique_ptr<AppendFile> file_;
};

}  // namespace lockstep
