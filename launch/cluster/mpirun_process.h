// MpirunProcess: mpirun of one attempt, as the child of its keeper (launch/cluster/keeper.h), with what it says and how
// it ended. Owned by the attempt; the destructor kills it.
#pragma once

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/plain_file.h"
#include "launch/cluster/mpi_folders.h"
#include "launch/cluster/mpirun.h"

namespace lockstep {

class MpirunProcess {
 public:
  // `environment` is added to this process's. Throws ExitCode::kDevice if no process can be made; and as MpiFolders().
  MpirunProcess(const MpirunOptions& options, std::vector<std::pair<std::string, std::string>> environment,
                bool verbose);
  MpirunProcess(const MpirunProcess&) = delete;
  ~MpirunProcess() { kill(); }

  int output() const { return output_.number(); }  // a descriptor to poll; -1 once it is closed
  void look();                                     // reads what mpirun says, and whether it has ended
  void ask_to_end() { launcher_ = Descriptor(); }  // it then ends its ranks, in a moment
  void kill();                                     // it and what it started on this machine, but for the ranks

  bool runs() const { return keeper_ > 0; }
  bool ending() const { return runs() && !output_; }  // it says nothing any more: how it ended is known in a moment
  const std::optional<double>& ended() const { return ended_; }  // when, by steady_now()
  const std::string& end() const { return end_; }                // "was killed by SIGKILL"
  const std::string& text() const { return text_; }              // what it said, up to 1 MiB

 private:
  const bool verbose_;
  std::unique_ptr<MpiFolders> folders_;  // absent where ranks are on other machines, which have their own
  Descriptor launcher_, output_;         // this end of the keeper's input, and of mpirun's output
  pid_t keeper_ = -1;                    // and the process group of both
  std::optional<double> ended_;
  std::string end_, text_;
};

}  // namespace lockstep
