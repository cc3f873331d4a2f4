#include "launch/records/run_status.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <filesystem>
#include <limits>
#include <sstream>

#include "core/base/host.h"
#include "core/base/plain_file.h"
#include "core/base/temporary.h"
#include "core/io/files.h"
#include "core/state/checkpoint.h"
#include "launch/records/run_dir.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

double age_of(const std::string& path) {
  struct stat st = {};
  return ::stat(path.c_str(), &st) == 0 ? std::max(0.0, std::difftime(std::time(nullptr), st.st_mtime)) : -1;
}

bool is_locked(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  return file && ::flock(file.number(), LOCK_SH | LOCK_NB) != 0;
}

// The last part of a file, from the beginning of a line on.
std::string tail_of(const std::string& path, int64_t bytes) {
  const auto file = open_if_there(path);
  if (!file) return {};
  const int64_t from = std::max<int64_t>(0, file->size - bytes);
  const std::string out = read_some(*file, from, static_cast<size_t>(file->size - from));
  return from > 0 ? out.substr(out.find('\n') + 1) : out;
}

void read_metrics(RunStatus& s, const std::string& path, size_t losses) {
  constexpr int64_t kLine = 700;
  const std::string lines = tail_of(path, kLine * static_cast<int64_t>(std::max<size_t>(losses, 64)));
  for (size_t at = 0, end; (end = lines.find('\n', at)) != std::string::npos; at = end + 1) {
    auto line = parse_json_object(std::string_view(lines).substr(at, end - at));
    if (!line) continue;
    s.step = integer_of(*line, "step");
    s.loss = number_of(*line, "loss");
    s.step_ms = number_of(*line, "step_ms");
    s.goodput = number_of(*line, "goodput", -1);
    s.losses.push_back(s.loss);
    for (auto& [key, value] : *line)
      if (key.ends_with("_per_s")) {
        s.rate_unit = key.substr(0, key.size() - 6);
        s.rate = number_of(*line, key);
      }
    if (const double v = number_of(*line, "val_loss", -1); v >= 0) {
      s.validation_loss = v;
      s.validation_step = s.step;
    }
    s.last_line = std::move(*line);
  }
  if (s.losses.size() > losses) s.losses.erase(s.losses.begin(), s.losses.end() - static_cast<std::ptrdiff_t>(losses));
}

// train.steps of the resolved configuration, which stands there as "  steps: 1000  # ...".
int64_t steps_of(const std::string& config) {
  constexpr size_t kMost = 4 << 20;
  const auto file = open_if_there(config);
  std::istringstream lines(file ? read_some(*file, 0, std::min(kMost, static_cast<size_t>(file->size))) : "");
  bool inside = false;
  for (std::string line; std::getline(lines, line);) {
    if (!line.empty() && line[0] != ' ') inside = line.starts_with("train:");
    else if (inside && line.starts_with("  steps:")) return std::atoll(line.c_str() + 8);
  }
  return 0;
}

// A launcher that left its file, which is `age` seconds old.
bool was_killed(const JsonObject& launcher, double age) {
  constexpr double kStale = 10;  // it writes once a second
  if (launcher.empty()) return false;
  const int64_t process = integer_of(launcher, "launcher");
  const bool known =
      text_of(launcher, "host") == host_name() && process > 1 && process <= std::numeric_limits<pid_t>::max();
  return age > kStale || (known && ::kill(static_cast<pid_t>(process), 0) != 0 && errno == ESRCH);
}

std::string killed_text(std::string_view what, int64_t process, const std::string& host) {
  return str("its ", what, " ", process, " on ", host, ", ended without a word, as one that is killed");
}

}  // namespace

std::string ranks_path(const std::string& dir) { return RunPaths{dir}.ranks(); }

void write_ranks(const std::string& dir, const std::vector<JsonObject>& lines) {
  const std::string path = ranks_path(dir);
  std::string all;
  for (const JsonObject& l : lines) all += json_line(l) + "\n";
  const Temporary made = make_temporary_file(path + ".tmp-");
  if (!made.lock) return;
  const bool written = write_all(made.lock, all);  // not synced: it is stale in a second
  if (!written || ::rename(made.path.c_str(), path.c_str()) != 0) ::unlink(made.path.c_str());
}

RunStatus read_run_status(const std::string& dir, size_t losses) {
  std::error_code error;
  require(fs::is_directory(dir, error), ExitCode::kMissingInput, dir, ": there is no such run directory");
  const RunPaths paths{dir};
  RunStatus s;
  s.total = steps_of(paths.config());
  read_metrics(s, paths.metrics(), losses);
  s.metrics_age_s = age_of(paths.metrics());
  if (const auto all = list_checkpoints(dir); !all.empty()) {
    s.checkpoint = all.front();
    s.checkpoint_age_s = age_of(s.checkpoint);
  }
  if (const auto lock = parse_json_object(read_head(paths.lock(), 4096))) {
    s.process = integer_of(*lock, "pid");
    s.host = text_of(*lock, "host");
  }
  const bool running = is_locked(paths.lock());
  // Who ends in an orderly way, also by an error, empties the lock's file.
  std::string killed;
  if (!running && s.process > 0) killed = killed_text("process", s.process, s.host);
  if (!running) s.process = 0;
  if (const auto failure = parse_json_object(read_head(paths.failure(), 1 << 16))) {
    s.failure = text_of(*failure, "message");
    s.failure_code = integer_of(*failure, "exit_code");
  }
  const std::string ranks = read_head(ranks_path(dir), 1 << 22);
  for (size_t at = 0, end; (end = ranks.find('\n', at)) != std::string::npos; at = end + 1)
    if (auto line = parse_json_object(std::string_view(ranks).substr(at, end - at)))
      (find_member(*line, "launcher") ? s.launcher : s.ranks.emplace_back()) = std::move(*line);
  if (was_killed(s.launcher, age_of(ranks_path(dir)))) {
    killed = killed_text("launcher, process", integer_of(s.launcher, "launcher"), text_of(s.launcher, "host"));
    s.launcher.clear(), s.ranks.clear();
  }
  if (running || !s.launcher.empty()) s.state = "running";
  else if (!s.failure.empty()) s.state = "failed";
  else if (!RunDir::holds_a_run(dir)) s.state = "no run";
  else s.state = s.total > 0 && s.step >= s.total ? "finished" : "stopped";
  if (s.state == "stopped" && !killed.empty()) {
    s.state = "failed";
    s.failure = killed;
    s.failure_code = static_cast<int64_t>(ExitCode::kRankLost);
  }
  return s;
}

}  // namespace lockstep
