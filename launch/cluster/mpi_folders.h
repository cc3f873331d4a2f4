// MpiFolders: the folders in which Open MPI keeps the files of one start of a job whose ranks are all on this machine:
// its session's folder in TMPDIR, and the memory that ranks share in /dev/shm. Open MPI removes its own files only
// where mpirun ends in an orderly way. These folders are removed by the destructor, by the keeper of mpirun where the
// launcher is killed (launch/cluster/keeper.h), and by the same user's next start where all of them are
// (core/base/temporary.h). Owned by MpirunProcess.
#pragma once

#include <array>
#include <string>
#include <utility>
#include <vector>

#include "core/base/temporary.h"

namespace lockstep {

class MpiFolders {
 public:
  // Throws ExitCode::kOutputLocked where there can be no folder in TMPDIR, kStorage where it is full.
  MpiFolders();
  ~MpiFolders();
  MpiFolders(const MpiFolders&) = delete;

  std::vector<std::string> paths() const;  // absolute
  std::vector<int> locks() const;          // descriptors; a folder is in use as long as a process has its own open
  // Variables by which Open MPI 4 and 5 are told. Where the user has set one for a folder, that folder is not made.
  const std::vector<std::pair<std::string, std::string>>& environment() const { return environment_; }

 private:
  using Variables = std::array<const char*, 2>;
  int add(const std::string& place, const Variables& variables);  // returns errno where that fails, otherwise 0

  std::vector<Temporary> folders_;
  std::vector<std::pair<std::string, std::string>> environment_;
};

}  // namespace lockstep
