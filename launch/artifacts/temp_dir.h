// TempDir: a temporary directory for the checkpoints of one command, created by rank 0; all ranks know its path. Owned
// by that command. It is removed by the destructor, and when SIGTERM, SIGINT or SIGHUP ends the process. A directory
// that a kill -9 left is removed by the same user's next TempDir on that machine, which recognises it by its lock: a
// process holds a lock on its directory as long as it runs.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace lockstep {

// Throws ExitCode::kOutputLocked where TMPDIR, or /tmp, is no folder that this user can write, kStorage where it is
// full. Open MPI and others, which keep small files there, say neither.
void require_temporary_folder();

class TempDir {
 public:
  // Creates a directory in TMPDIR, or in /tmp. Throws ExitCode::kOutputLocked if that is not possible, kStorage if the
  // disk is full. Collective.
  explicit TempDir(Communicator& comm);
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  class SignalWatch;

  std::string path_;
  int lock_ = -1;                       // on rank 0: descriptor of the directory, which holds the lock
  std::unique_ptr<SignalWatch> watch_;  // on rank 0
};

}  // namespace lockstep
