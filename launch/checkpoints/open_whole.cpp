#include "launch/checkpoints/open_whole.h"

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

enum class Hold { kNo, kYes };

std::optional<Checkpoint> find_whole(Communicator& comm, const std::string& dir, int64_t at_most, Hold hold) {
  std::string retired;  // the first of those that were
  for (int rounds = 0; rounds < kMostRetired; ++rounds) {
    std::string names, first_problem, gone;
    fail_together(comm, [&] {
      if (comm.rank() == 0) names = names_of(dir, at_most);
    });
    names = broadcast_text(comm, names, 0, "checkpoints");
    std::istringstream list(names);
    int64_t damaged = 0;
    for (std::string name; gone.empty() && list >> name;) {
      const std::string path = name == "." ? dir : str(dir, "/checkpoints/", name);
      Checkpoint c;
      try {
        fail_together(
            comm,
            [&] {
              c = hold == Hold::kYes ? hold_checkpoint(path) : open_checkpoint(path);
              verify_checkpoint(c, comm.rank(), comm.size());
            },
            "checkpoint");
        if (!retired.empty() && comm.rank() == 0) log_info(retired_for_text(retired, path));
        return c;
      } catch (const Error& e) {  // thrown on all ranks with the same exit code
        if (e.code() != ExitCode::kBadData && e.code() != ExitCode::kMissingInput) throw;
        const auto said = all_gather_text(comm, e.is_secondary() ? "" : e.what(), "damaged checkpoint");
        if (name == ".") throw;
        // Rank 0 listed it: where it is no longer there for that rank, either, its run has retired it.
        if (!broadcast_text(comm, comm.rank() == 0 && was_retired(path) ? path : "", 0, "retired").empty()) {
          gone = path;
          continue;
        }
        int who = 0;
        while (who + 1 < comm.size() && said[static_cast<size_t>(who)].empty()) ++who;
        // Else this rank sees another file system.
        if (e.code() == ExitCode::kMissingInput && who != 0) throw;
        const std::string& problem = said[static_cast<size_t>(who)];
        ++damaged;
        if (first_problem.empty()) first_problem = problem;
        if (comm.rank() == 0) log_warning(str("passing over a checkpoint: ", problem));
      }
    }
    if (damaged > 0 && gone.empty()) {
      if (comm.rank() != 0) throw Error::secondary(ExitCode::kBadData);
      throw Error(ExitCode::kBadData,
                  str(dir, ": none of its ", damaged, " checkpoints is whole; the newest: ", first_problem));
    }
    // A listing that is made while one takes another's place may show neither.
    if (gone.empty() && retired.empty() && rounds > 0) return {};
    if (retired.empty()) retired = gone;
  }
  return {};
}

}  // namespace

std::optional<Checkpoint> newest_whole(Communicator& comm, const std::string& dir, int64_t at_most) {
  trace_mark();
  return find_whole(comm, dir, at_most, Hold::kNo);
}

Checkpoint open_whole(Communicator& comm, const std::string& dir) {
  auto found = find_whole(comm, dir, std::numeric_limits<int64_t>::max(), Hold::kYes);
  if (!found && comm.rank() != 0) throw Error::secondary(ExitCode::kMissingInput);
  require(found.has_value(), ExitCode::kMissingInput, dir, ": holds no checkpoint");
  return std::move(*found);
}

}  // namespace lockstep
