#include "comm/mpi/mpi_start.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "comm/call.h"
#include "comm/mpi/mpi_comm.h"
#include "comm/mpi/mpi_launch.h"
#include "comm/progress_board.h"
#include "core/base/error.h"
#include "core/base/host.h"
#include "core/base/log.h"

namespace lockstep {
namespace {

std::atomic<double> limit_s{60};

// The folder that the launcher creates for the job on each host, and removes at its end; empty if there is none.
std::string job_folder() {
  const char* folder = std::getenv("PMIX_SERVER_TMPDIR");
  return folder ? folder : "";
}
std::string mark_of(const std::string& folder, int rank) { return str(folder, "/lockstep-rank-", rank); }

void leave_mark() {
  const std::string folder = job_folder();
  if (folder.empty() || launched_rank() < 0) return;
  const int file =
      ::open(mark_of(folder, launched_rank()).c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (file < 0) return;
  const std::string text = str(int64_t{::getpid()});
  (void)!::write(file, text.data(), text.size());
  ::close(file);
}

std::string missing_text(double seconds) {
  const std::string folder = job_folder(), limit = str("within ", seconds, " s");
  const int size = launched_size();
  std::vector<int> here, absent;
  std::string stopped;
  for (int r = 0; r < size && !folder.empty(); ++r) {
    std::ifstream mark(mark_of(folder, r));
    (mark ? here : absent).push_back(r);
    int64_t process = 0;
    if (!(mark >> process)) continue;
    if (const std::string why = stopped_text(process); !why.empty()) stopped += str("; rank ", r, ": ", why);
  }
  std::string text = str("MPI did not start ", limit, " (comm.deadline)");
  const bool one_host = launched_local_size() == size;
  if (!here.empty() && !absent.empty())
    text += str(": ", ranks_text(absent), " never reached MPI", one_host ? "" : ", or are on other hosts", "; on ",
                host_name(), " arrived: ", ranks_text(here));
  else if (!here.empty()) text += ": all ranks have reached it";
  text += stopped;
  return text + ". Each process that the launcher starts must be lockstep, and must not end before the others";
}

}  // namespace

void mpi_start_within(double seconds) { limit_s = seconds; }

MpiStart::MpiStart() {
  if (!mpi_launched()) return;
  leave_mark();
  try {
    thread_ = std::thread([this] {
      const double seconds = limit_s;
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return over_; })) return;
      // All waiting ranks would print the same message. The first one prints it immediately and thereby ends the job;
      // the others wait for that.
      bool first = true;
      for (int r = 0; r < launched_rank(); ++r) first = first && ::access(mark_of(job_folder(), r).c_str(), F_OK) != 0;
      if (!first) std::this_thread::sleep_for(std::chrono::seconds(3));
      log_error(str("rank ", launched_rank(), " on ", host_name(), ": ", missing_text(seconds)));
      close_log_file();
      _exit(static_cast<int>(ExitCode::kRankLost));
    });
  } catch (const std::system_error&) {
    // If no thread can be created here, a later one fails too, and its error is reported.
  }
}

MpiStart::~MpiStart() {
  {
    std::lock_guard lock(mutex_);
    over_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

}  // namespace lockstep
