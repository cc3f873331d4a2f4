// MpiStart: enforces the deadline while MPI starts and no communicator exists yet: MPI_Init waits without limit for a
// rank that never calls it. Each rank creates a marker file in the launcher's folder for the job, so that the error can
// name the missing ranks.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

namespace lockstep {

class MpiStart {
 public:
  // Starts a thread that ends the process with ExitCode::kRankLost if this object still exists after the limit of
  // mpi_start_within (comm/mpi/mpi_comm.h). Does nothing if no launcher started this process or no thread can be
  // created.
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
