// MpiStart: keeps the deadline while MPI starts, where no communicator does so yet: MPI_Init waits for ever for a rank
// that never calls it. Ranks leave a mark each in the launcher's folder for the job, so that the message can name those
// that are missing.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep {

class MpiStart {
 public:
  // Begins to watch; ends the process with ExitCode::kRankLost if this object still lives after the limit of
  // mpi_start_within (comm/mpi_comm.h). Watches nothing where no launcher started this process, or no thread can be
  // had.
  MpiStart();
  ~MpiStart();
  MpiStart(const MpiStart&) = delete;
  MpiStart& operator=(const MpiStart&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  std::thread thread_;
};

}  // namespace lockstep
