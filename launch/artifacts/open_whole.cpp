#include "launch/artifacts/open_whole.h"

#include <filesystem>
#include <sstream>

#include "core/base/log.h"
#include "core/base/trace.h"
#include "launch/world/fail_together.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// The names of the checkpoints in `dir` up to step `at_most` as rank 0 sees them, newest first; "." if `dir` itself is
// a checkpoint.
std::string names_of(const std::string& dir, int64_t at_most) {
  std::error_code error;
  require(fs::is_directory(dir, error), ExitCode::kMissingInput, dir, ": there is no such directory");
  if (fs::exists(dir + "/manifest.json", error)) return ".";
  std::string out;
  for (const std::string& path : list_checkpoints(dir))
    if (step_of_checkpoint(path) <= at_most) out += fs::path(path).filename().string() + " ";
  return out;
}

}  // namespace

std::optional<Checkpoint> newest_whole(Communicator& comm, const std::string& dir, int64_t at_most) {
  trace_mark();
  std::string names, first_problem;
  fail_together(comm, [&] {
    if (comm.rank() == 0) names = names_of(dir, at_most);
  });
  names = broadcast_text(comm, names, 0, "checkpoints");
  std::istringstream list(names);
  int64_t damaged = 0;
  for (std::string name; list >> name; ++damaged) {
    const std::string path = name == "." ? dir : cat(dir, "/checkpoints/", name);
    Checkpoint c;
    try {
      fail_together(
          comm,
          [&] {
            c = open_checkpoint(path);
            verify_checkpoint(c, comm.rank(), comm.size());
          },
          "checkpoint");
      return c;
    } catch (const Error& e) {  // thrown on all ranks with the same exit code
      if (e.code() != ExitCode::kBadData && e.code() != ExitCode::kMissingInput) throw;
      const auto said = all_gather_text(comm, e.is_secondary() ? "" : e.what(), "damaged checkpoint");
      int who = 0;
      while (who + 1 < comm.size() && said[static_cast<size_t>(who)].empty()) ++who;
      // Rank 0 listed it, so it is not damaged: this rank sees another file system.
      if (name == "." || (e.code() == ExitCode::kMissingInput && who != 0)) throw;
      const std::string& problem = said[static_cast<size_t>(who)];
      if (first_problem.empty()) first_problem = problem;
      if (comm.rank() == 0) log_warning(cat("passing over a checkpoint: ", problem));
    }
  }
  if (damaged == 0) return {};
  if (comm.rank() != 0) throw Error::secondary(ExitCode::kBadData);
  throw Error(ExitCode::kBadData,
              cat(dir, ": none of its ", damaged, " checkpoints is whole; the newest: ", first_problem));
}

Checkpoint open_whole(Communicator& comm, const std::string& dir) {
  auto found = newest_whole(comm, dir);
  if (!found && comm.rank() != 0) throw Error::secondary(ExitCode::kMissingInput);
  require(found.has_value(), ExitCode::kMissingInput, dir, ": holds no checkpoint");
  return std::move(*found);
}

}  // namespace lockstep
