#include "launch/cluster/cancel.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/base/host.h"
#include "core/base/plain_file.h"
#include "launch/cluster/process_view.h"
#include "launch/records/run_dir.h"

namespace lockstep {
namespace {

// What refers to one process, also where its number is given to another; -1 where the kernel has nothing of the kind.
Descriptor reference_to(int64_t process) {
  return Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, static_cast<pid_t>(process), 0)));
}

bool signalled(const Descriptor& reference, int64_t process, int signal) {
  if (reference) return ::syscall(SYS_pidfd_send_signal, reference.number(), signal, nullptr, 0) == 0;
  return ::kill(static_cast<pid_t>(process), signal) == 0;
}

}  // namespace

int64_t ask_to_end(const std::string& dir, const RunStatus& run) {
  const bool launched = !run.launcher.empty();
  const std::string place = launched ? ranks_path(dir) : RunPaths{dir}.lock(),
                    host = launched ? text_of(run.launcher, "host") : run.host;
  require(host == host_name(), ExitCode::kUsage, dir, ": it runs on ", host, ": cancel it there");
  const int64_t process = launched ? integer_of(run.launcher, "launcher") : run.process;
  require(process > 1 && process <= std::numeric_limits<pid_t>::max(), ExitCode::kBadData, place,
          ": names no process to signal");
  const Descriptor reference = reference_to(process);
  const auto mistrust = [&](const std::string& why) {
    return Error(ExitCode::kBadData,
                 str(place, ": names process ", process, ", which ", why,
                     "; no signal was sent. If you are sure that it belongs to this run, end it by: kill ", process));
  };
  require(process_state(process) != 0, ExitCode::kBadData, place, ": process ", process,
          " is not there any more; no signal was sent (a run in a container is cancelled there)");
  if (launched) {
    const std::string program = program_of(process);
    if (!runs_this_program(process)) throw mistrust(str("runs ", program.empty() ? "another program" : program));
    if (start_time(process) != integer_of(run.launcher, "started", -1)) throw mistrust("began at another time");
    if (!has_open(process, dir)) throw mistrust("does not have the run directory open");
  } else if (!has_open(process, place)) {
    throw mistrust("does not have it open");
  }
  const bool done = signalled(reference, process, SIGTERM);
  const int failed = errno;
  require(done, ExitCode::kUsage, dir, ": process ", process, " cannot be signalled: ", std::strerror(failed));
  return process;
}

}  // namespace lockstep
