// TempDir: a temporary directory for the checkpoints of one command, created by rank 0; all ranks know its path. Owned
// by that command. It is removed by the destructor, and when SIGTERM, SIGINT or SIGHUP ends the process. A directory
// that a kill -9 left is removed by the same user's next TempDir on that machine (core/base/temporary.h).
#pragma once

#include <memory>
#include <string>

#include "comm/communicator.h"
#include "core/base/plain_file.h"

namespace lockstep {

std::string temporary_place();  // TMPDIR, or /tmp

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
  Descriptor lock_;                     // on rank 0: the directory, locked
  std::unique_ptr<SignalWatch> watch_;  // on rank 0
};

}  // namespace lockstep
