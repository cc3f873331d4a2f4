#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "core/base/text_table.h"
#include "core/io/files.h"
#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/config/settings.h"
#include "launch/records/run_dir.h"
#include "launch/records/run_status.h"
#include "launch/report/profile_summary.h"
#include "launch/terminal/output.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Oldest first.
std::vector<std::pair<fs::file_time_type, std::string>> timelines_of(const std::string& dir) {
  std::vector<std::pair<fs::file_time_type, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(RunPaths{dir}.profile(), error))
    if (entry.path().extension() == ".json") found.emplace_back(entry.last_write_time(error), entry.path().string());
  std::sort(found.begin(), found.end());
  return found;
}

// A file, or the newest timeline of a run.
std::string timeline_of(const std::string& given) {
  std::error_code error;
  if (!fs::is_directory(given, error)) return given;
  const auto found = timelines_of(given);
  require(!found.empty(), ExitCode::kMissingInput, given,
          ": has no timeline; profile.steps=10-13 writes one of those steps, `lockstep profile record` of a run that "
          "goes on");
  return found.back().second;
}

// Asks a run that goes on for the timeline of its next steps, and waits for it.
int record(const std::string& dir, int64_t steps, double wait_s) {
  const RunStatus before = read_run_status(dir, 1);
  require(before.state == "running", ExitCode::kUsage, dir, ": is ", before.state,
          "; only a running run can be recorded; to record a new or resumed run, set profile.steps, such as 10-13");
  const RunPaths paths{dir};
  const auto newest = [&] {
    const auto all = timelines_of(dir);
    return all.empty() ? std::pair<fs::file_time_type, std::string>() : all.back();
  };
  const auto old = newest();
  std::error_code error;
  make_folder(paths.profile());
  replace_file(paths.profile_request(), json_line({{"steps", steps}}) + "\n");
  for (double waited = 0; waited < wait_s; waited += 0.2) {
    ::usleep(200'000);
    if (const auto now = newest(); now != old) {
      print_out(now.second + "\n");
      return 0;
    }
    if (read_run_status(dir, 1).state == "running") continue;
    if (newest() != old) continue;  // written as its last act
    fs::remove(paths.profile_request(), error);
    throw Error(ExitCode::kMissingInput, str(dir, ": the run ended before the timeline was written"));
  }
  fs::remove(paths.profile_request(), error);
  throw Error(ExitCode::kMissingInput,
              str(dir, ": no timeline within ", fixed(wait_s, 0), " s; --wait for longer steps"));
}

int summary(const Arguments& a) {
  constexpr int64_t kMost = int64_t(4) << 30;
  const std::string path = timeline_of(a.positional[0]);
  const auto file = open_if_there(path);
  require(file.has_value(), ExitCode::kMissingInput, path, ": there is no such file");
  require(file->size <= kMost, ExitCode::kBadData, path, ": is larger than 4 GiB");
  const ProfileSums sums = read_profile(read_some(*file, 0, static_cast<size_t>(file->size)), path);
  const std::vector<ProfileAdvice> advice = profile_advice(sums);
  if (a.has("json")) {
    for (const ProfileAdvice& one : advice)
      print_out(json_line({{"change", one.change}, {"reason", one.reason}, {"most", rounded(one.most)}}) + "\n");
    return 0;
  }
  std::string out = summary_text(sums);
  if (!advice.empty()) out += "\nwhat to change, and at most which part of a step it can gain\n";
  for (const ProfileAdvice& one : advice)
    out += str("  ", one.change, " (", fixed(100 * one.most, 0), "%): ", one.reason, "\n");
  print_out(out);
  return 0;
}

}  // namespace

std::vector<Command> profile_forms() {
  return {{"profile record",
           "profile record RUN [--steps N] [--wait SECONDS]",
           "Asks a run that goes on to write the timeline of its next steps: what every thread of every rank did and\n"
           "when, as a file for ui.perfetto.dev and `lockstep profile summary`. Waits for it and prints its path.",
           {{"steps", "how many", "N", "3"}, {"wait", "at most so long", "SECONDS", "600"}},
           1,
           1},
          {"profile summary",
           "profile summary RUN|FILE.json [--json]",
           "Says where the time of the steps of a timeline went: operations and modules of the slowest rank with the\n"
           "rates that they reach, exchanges, the ranks beside each other, and what to change.",
           {{"json", "print one JSON object for each advice instead"}},
           1,
           1}};
}

int profile_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(profile_forms(), given);
  if (a.help || !is_first_process()) return 0;
  return a.form == "record"
             ? record(a.positional[0], a.integer("steps", 1, ProfileOptions::kMostSteps), a.number("wait", 1))
             : summary(a);
}

}  // namespace lockstep
