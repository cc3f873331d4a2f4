#include <algorithm>
#include <cmath>
#include <optional>

#include "comm/mpi/mpi_comm.h"
#include "core/base/text_table.h"
#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/doctor/burn.h"
#include "launch/doctor/measure.h"
#include "launch/terminal/output.h"
#include "launch/terminal/progress.h"
#include "launch/world/memory_report.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

// Prints what was found. Returns whether any rank computed other values.
bool burn_all(Communicator& comm, double seconds, int64_t memory, bool json) {
  BurnOptions o;
  o.seconds = seconds;
  o.memory = memory;
  std::optional<Progress> bar;
  if (comm.rank() == 0) {
    ProgressOptions shown;
    shown.title = "burn";
    shown.unit = "s";
    shown.total = static_cast<int64_t>(std::ceil(seconds));
    bar.emplace(shown);
    o.progress = [&bar, total = shown.total](double elapsed, int64_t passes) {
      bar->set(std::min(static_cast<int64_t>(elapsed), total), str(passes, " passes"));
    };
  }
  const Burned found = burn(comm, o);
  if (comm.rank() != 0) return !found.findings.empty();
  bar.reset();
  std::string out;
  if (json) {
    out = json_line({{"kind", std::string("burn")},
                     {"ranks", int64_t{comm.size()}},
                     {"seconds", seconds},
                     {"passes", found.passes}}) +
          "\n";
    for (const std::string& f : found.findings)
      out += json_line({{"kind", std::string("finding")}, {"text", f}}) + "\n";
  } else {
    out =
        str(found.passes, " passes by ", comm.size(), comm.size() == 1 ? " rank" : " ranks", " in ", fixed(seconds, 0),
            " s: ", found.findings.empty() ? "all computed the same bits\n" : "not all computed the same bits\n");
    for (const std::string& f : found.findings) out += "  " + f + "\n";
  }
  print_out(out);
  return !found.findings.empty();
}

}  // namespace

std::vector<Command> doctor_forms() {
  return {
      {"doctor",
       "doctor [--ranks N] [--dir DIR] [--device auto|cpu|cuda] [--burn SECONDS [--burn-memory SIZE]] [--json]",
       "Examines the ranks of a job: where each runs, how fast it computes, latency and bandwidth between each pair\n"
       "(with more than 16 ranks, between neighbours in a ring), all-reduce, what machines send when all do, the file\n"
       "system of DIR, and clocks. Names what is slower than the rest or differs from most. Run it as a job would be:\n"
       "lockstep launch -n N -- doctor. With --burn it tests processors and memory in place of that: the same\n"
       "computations for SECONDS, whose bits must be the same in every pass and on every rank of one kind. Exit code\n"
       "76 where they are not.",
       {{"ranks", "ranks in this process", "N", "0"},
        {"dir", "where a temporary file of 64 MiB is written and read", "DIR", "."},
        {"device", "where ranks compute and exchange, as the key device", "WHAT", "auto"},
        {"burn", "test processors and memory for so long", "SECONDS", ""},
        {"burn-memory", "memory that each rank fills and reads back in a pass", "SIZE", "256MiB"},
        {"json", "print one JSON object per rank, link and finding"}},
       0,
       0}};
}

int doctor_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(doctor_forms(), given);
  if (a.help) return 0;
  WorldOptions world;
  world.ranks = world_size(a.ranks());
  const std::string& device = a.text("device");
  require(device == "auto" || device == "cpu" || device == "cuda", ExitCode::kUsage, "--device ", device,
          ": must be auto, cpu or cuda");
  world.device.choice = device == "cpu"    ? DeviceChoice::kCpu
                        : device == "cuda" ? DeviceChoice::kCuda
                                           : DeviceChoice::kAuto;
  const double seconds = a.text("burn").empty() ? 0 : a.number("burn", 1e-3);
  const int64_t memory = parse_bytes(a.text("burn-memory"), "burn-memory");
  bool failed = false;
  const int code = run_world(world, [&](Communicator& comm) {
    if (seconds > 0) {
      const bool bad = burn_all(comm, seconds, memory, a.has("json"));
      if (comm.rank() == 0 || mpi_launched()) failed = bad;
      return;
    }
    const Health health = examine(comm, a.text("dir"));
    if (comm.rank() == 0) print_out(a.has("json") ? json_lines(health) : tables(health));
    comm.barrier("end of doctor");
  });
  return code == 0 && failed ? static_cast<int>(ExitCode::kRanksDisagree) : code;
}

}  // namespace lockstep
