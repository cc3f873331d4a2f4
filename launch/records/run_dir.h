// RunDir: the directory of a run's artifacts, with a lock against a second process that uses it. Owned by rank 0 during
// the run; other ranks use only RunPaths.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/error.h"

namespace lockstep {

struct RunPaths {
  std::string dir;

  std::string config() const { return dir + "/config.yaml"; }
  std::string attempts() const { return dir + "/attempts.jsonl"; }
  std::string metrics() const { return dir + "/metrics.jsonl"; }
  std::string log() const { return dir + "/log.txt"; }
  std::string about() const { return dir + "/about.json"; }             // what the run is made of, for reports
  std::string profile() const { return dir + "/profile"; }              // timelines
  std::string histograms() const { return dir + "/histograms.jsonl"; }  // of watched values
  std::string memory_profile() const { return profile() + "/memory.jsonl"; }
  std::string profile_request() const { return profile() + "/request"; }  // of `lockstep profile record`
  std::string failure() const { return dir + "/failure.json"; }
  std::string algorithms() const { return dir + "/algorithms.txt"; }
  std::string checkpoints() const { return dir + "/checkpoints"; }
  std::string tensorboard() const { return dir + "/tensorboard"; }
  std::string lock() const { return dir + "/lock"; }
  std::string reference() const {
    return dir + "/reference.h5";
  }                                                           // of preferences (launch/training/evaluation/reference.h)
  std::string ranks() const { return dir + "/ranks.jsonl"; }  // of a launcher, while it runs
};

// The content of failure.json.
struct Failure {
  ExitCode code = ExitCode::kInternal;
  int rank = 0;
  int64_t step = -1;  // steps done by the rank that failed; -1: it failed while the run was set up
  std::string message;
  int64_t equal_step = -1;   // the last step after which verify.every found all replicas equal, or, where it is
                             // verify.recompute that failed, the last whose gradients it found right; -1: none
  bool miscomputes = false;  // the rank's processor was found to compute wrongly, again and again (verify.recompute)
};

class RunDir {
 public:
  // Creates the directory if absent, checks that it can be written, takes the lock, creates checkpoints/ and
  // tensorboard/. Throws ExitCode::kOutputLocked if that fails, if another process holds the lock (it is named), or if
  // the directory contains a run and `resume` is false; kStorage if the disk is full.
  RunDir(const std::string& dir, bool resume);
  RunDir(const RunDir&) = delete;
  RunDir& operator=(const RunDir&) = delete;
  ~RunDir();  // releases the lock

  const RunPaths& paths() const { return paths_; }
  bool resumed() const { return resumed_; }  // the directory contained a run

  // Throws ExitCode::kOutputLocked if the directory or its lock file was removed, moved or replaced: another process
  // may then use the directory.
  void check_held() const;

  // Writes the resolved configuration. Throws kOutputLocked if there is a config.yaml that lockstep did not write.
  void write_config(std::string_view yaml) const;
  // Writes which algorithm the GPU libraries chose for each shape.
  void write_algorithms(std::string_view text) const;

  // Whether the directory contains metrics or a checkpoint, which a new run would mix with its own or overwrite.
  static bool holds_a_run(const std::string& dir);

  // Who holds the lock of a run directory, as "process 12 on HOST since TIME"; "" for nobody.
  static std::string holder(const std::string& dir);

  // Throws what the constructor would for `dir`, as far as that can be known without writing: it is not created, locked
  // or changed.
  static void require_usable(const std::string& dir, bool resume);

 private:
  void take_lock();
  void release_lock();

  RunPaths paths_;
  bool resumed_ = false;
  int lock_fd_ = -1;
};

// Writes failure.json atomically. Errors are ignored, because it is called while another error is being handled.
void write_failure(const std::string& dir, const Failure& failure) noexcept;

// The name of the file system of `dir`, or of the nearest folder above it, where other machines cannot see it unless
// this one exports it: "ext4". Empty: it may be shared.
std::string local_file_system(const std::string& dir);

// `dir`, or the nearest folder above it that exists.
std::string nearest_folder(const std::string& dir);

// Throws ExitCode::kStorage if the file system of `dir` has fewer than `bytes` free. `what` is the beginning of the
// message: "3 checkpoints need".
void require_free_space(const std::string& dir, int64_t bytes, std::string_view what);

}  // namespace lockstep
