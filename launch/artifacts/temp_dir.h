// TempDir: a temporary directory for the checkpoints of one command, made by rank 0; all ranks know its path. Owned by
// that command. It is removed with its owner, and where SIGTERM, SIGINT or SIGHUP ends the process. What a kill -9
// leaves is removed by the same user's next TempDir on that machine: the directory is locked by its process for as long
// as that lives.
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"

namespace lockstep {

class TempDir {
 public:
  // In TMPDIR, or /tmp. Throws ExitCode::kOutputLocked where no directory can be made there, kStorage where the disk is
  // full. Collective.
  explicit TempDir(Communicator& comm);
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  ~TempDir();

  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  class SignalWatch;

  std::string path_;
  int lock_ = -1;                       // of rank 0: the open directory
  std::unique_ptr<SignalWatch> watch_;  // of rank 0
};

}  // namespace lockstep
