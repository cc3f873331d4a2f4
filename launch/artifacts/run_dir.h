// The directory of one run: where its artifacts lie, and the lock that keeps a second launch out.
// Owned by rank 0 for as long as the run lasts; other ranks use RunPaths alone.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace lockstep {

struct RunPaths {
  std::string dir;

  std::string config() const { return dir + "/config.yaml"; }
  std::string metrics() const { return dir + "/metrics.jsonl"; }
  std::string log() const { return dir + "/log.txt"; }
  std::string failure() const { return dir + "/failure.json"; }
  std::string algorithms() const { return dir + "/algorithms.txt"; }
  std::string checkpoints() const { return dir + "/checkpoints"; }
  std::string tensorboard() const { return dir + "/tensorboard"; }
  std::string lock() const { return dir + "/lock"; }
};

// What failure.json says.
struct Failure {
  ExitCode code = ExitCode::kInternal;
  int rank = 0;
  int64_t step = -1;  // -1: before the first
  std::string message;
};

class RunDir {
 public:
  // Makes the directory where absent, tries that it can be written, takes the lock, makes checkpoints/ and
  // tensorboard/. Throws ExitCode::kOutputLocked where that fails, where another launch holds it (named), or where it
  // holds a run and `resume` is false; kStorage where the disk is full.
  RunDir(const std::string& dir, bool resume);
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;
  ~RunDir();  // gives the lock back

  const RunPaths& paths() const { return paths_; }
  bool resumed() const { return resumed_; }  // there was a run

  // Throws ExitCode::kOutputLocked where the directory or its lock was removed, moved or replaced since: another launch
  // may use it.
  void check_held() const;

  // The resolved configuration. Throws kOutputLocked where config.yaml is there and not written by us.
  void write_config(std::string_view yaml) const;
  // What a GPU's libraries chose for each shape.
  void write_algorithms(std::string_view text) const;

  // A metrics line or a checkpoint: something a new run would mix with or overwrite.
  static bool holds_a_run(const std::string& dir);

 private:
  void take_lock();
  void release_lock();

  RunPaths paths_;
  bool resumed_ = false;
  int lock_fd_ = -1;
};

// Best effort, atomic, throws nothing: it is called while another error is on its way out.
void write_failure(const std::string& dir, const Failure& failure) noexcept;

// Throws ExitCode::kStorage where the file system of `dir` has fewer than `bytes` free; `what` reads as in
// "3 checkpoints need".
void require_free_space(const std::string& dir, int64_t bytes, std::string_view what);

}  // namespace lockstep
