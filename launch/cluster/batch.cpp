#include "launch/cluster/batch.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <sstream>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "launch/cluster/templates.h"
#include "launch/process/child_process.h"

namespace lockstep {
namespace {

bool is_installed(const char* program) {
  const char* path = std::getenv("PATH");
  std::istringstream folders(path ? path : "");
  std::error_code ignored;
  for (std::string folder; std::getline(folders, folder, ':');)
    if (std::filesystem::exists(folder + "/" + program, ignored)) return true;
  return false;
}

std::string trimmed(std::string text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back()))) text.pop_back();
  text.erase(0, std::min(text.find_first_not_of(" \t\n"), text.size()));
  return text;
}

// The id stands behind what else is said, such as a site's notices.
std::string last_line(const std::string& text) { return text.substr(text.rfind('\n') + 1); }

}  // namespace

int64_t parse_time(const std::string& text) {
  const auto bad = [&]() -> Error {
    return {ExitCode::kUsage, str("--time ", text, ": is not a time such as 2:00:00, 1-12:00:00 or 90 (minutes)")};
  };
  const size_t dash = text.find('-');
  std::vector<int64_t> parts;
  std::istringstream words(dash == std::string::npos ? text : text.substr(dash + 1));
  for (std::string w; std::getline(words, w, ':');) {
    if (w.empty() || w.size() > 6 || w.find_first_not_of("0123456789") != std::string::npos) throw bad();
    parts.push_back(std::stoll(w));
  }
  int64_t days = 0;
  if (dash != std::string::npos) {
    const std::string d = text.substr(0, dash);
    if (d.empty() || d.size() > 4 || d.find_first_not_of("0123456789") != std::string::npos) throw bad();
    days = std::stoll(d);
  }
  int64_t out = 86400 * days;
  if (parts.empty() || parts.size() > 3) throw bad();
  if (dash != std::string::npos)
    for (size_t i = 0; i < parts.size(); ++i) out += parts[i] * (i == 0 ? 3600 : i == 1 ? 60 : 1);
  else if (parts.size() == 3) out += 3600 * parts[0] + 60 * parts[1] + parts[2];
  else out += 60 * parts[0] + (parts.size() == 2 ? parts[1] : 0);
  if (out < 1) throw bad();
  return out;
}

std::string time_text(int64_t s) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "%lld:%02lld:%02lld", static_cast<long long>(s / 3600),
                static_cast<long long>(s / 60 % 60), static_cast<long long>(s % 60));
  return text.data();
}

std::string installed_scheduler() { return is_installed("sbatch") ? "slurm" : is_installed("qsub") ? "pbs" : ""; }

std::string job_script(const BatchJob& job, const std::string& text) {
  const auto require_line = [](std::string_view what, const std::string& value) {
    require(std::none_of(value.begin(), value.end(), [](unsigned char c) { return std::iscntrl(c); }), ExitCode::kUsage,
            "submit: ", what, " '", escaped(value, Lines::kEscape),
            "' holds a line break or another control character, which would change the batch script");
  };
  require_line("the folder of the job's files", job.folder);
  require_line("the working directory", job.directory);
  for (const std::string& o : job.options) require_line("--option", o);
  const bool slurm = job.scheduler == "slurm";
  std::string options;
  if (slurm && job.gpus_per_node > 0) options += str("#SBATCH --gpus-per-node=", job.gpus_per_node, "\n");
  for (const std::string& o : job.options) options += str(slurm ? "#SBATCH " : "#PBS ", o, "\n");
  std::string task;
  if (job.points > 0) {
    const std::string most = job.at_once > 0 ? str("%", job.at_once) : "";
    options += str(slurm ? "#SBATCH --array=0-" : "#PBS -J 0-", job.points - 1, most, "\n");
    task = slurm ? " \"$SLURM_ARRAY_TASK_ID\"" : " \"${point:-$PBS_ARRAY_INDEX}\"";
  }
  const std::map<std::string, std::string> values{
      {"name", job.name},
      {"nodes", str(job.nodes)},
      {"ranks_per_node", str(job.ranks_per_node)},
      {"cpus_per_rank", str(job.cpus_per_rank)},
      {"cpus_per_node", str(job.cpus_per_rank * job.ranks_per_node)},
      {"gpus", job.gpus_per_node > 0 ? str(":ngpus=", job.gpus_per_node) : ""},
      {"time", time_text(job.seconds)},
      {"warning", str(job.warning)},
      {"folder", shell_line({job.folder})},
      {"directory", shell_line({job.directory})},
      {"options", trimmed(options)},
      {"setup", job.setup},
      {"command", shell_line(job.command) + task},
      {"", "@"}};  // @@
  const std::string from = !text.empty() ? text : slurm ? kSlurmTemplate : kPbsTemplate;
  std::string out;
  for (size_t at = 0; at < from.size();) {
    const size_t begin = from.find('@', at), end = begin == std::string::npos ? begin : from.find('@', begin + 1);
    if (end == std::string::npos) {
      out += from.substr(at);
      break;
    }
    const std::string name = from.substr(begin + 1, end - begin - 1);
    const auto value = values.find(name);
    if (value == values.end()) {
      const bool word =
          std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isalnum(c) || c == '_'; });
      require(!word, ExitCode::kUsage, "the template of the job has an unknown placeholder @", name, "@");
      out += from.substr(at, begin + 1 - at);
      at = begin + 1;
      continue;
    }
    out += from.substr(at, begin - at) + value->second;
    at = end + 1;
  }
  return out;
}

std::string submit_script(const BatchJob& job, const std::string& path) {
  int code = 0;
  if (job.scheduler == "slurm") {
    const std::string test = run_and_capture({"sbatch", "--test-only", path}, code);
    require(code == 0, ExitCode::kUsage, "Slurm refuses the job: ", trimmed(test), " (", path, ")");
    const std::string said = trimmed(run_and_capture({"sbatch", "--parsable", path}, code));
    require(code == 0, ExitCode::kUsage, "Slurm refuses the job: ", said, " (", path, ")");
    const std::string last = last_line(said);
    return last.substr(0, last.find(';'));
  }
  const std::string said = trimmed(run_and_capture({"qsub", path}, code));
  require(code == 0, ExitCode::kUsage, "PBS refuses the job: ", said, " (", path, ")");
  return last_line(said);
}

bool is_job_id(std::string_view text) {
  const auto all_of = [](std::string_view part, std::string_view allowed) {
    return !part.empty() && part.find_first_not_of(allowed) == part.npos;
  };
  constexpr std::string_view kDigits = "0123456789";
  constexpr std::string_view kHost = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-_.";
  const size_t end = std::min(text.find_first_not_of(kDigits), text.size());
  const std::string_view rest = text.substr(end);
  if (end == 0 || text.size() > 200) return false;
  if (rest.empty()) return true;
  if (rest[0] == '_') return all_of(rest.substr(1), kDigits);  // a task of Slurm's arrays; of PBS's it is in brackets
  const size_t behind = rest[0] == '[' ? rest.find(']') : 0;
  if (behind == rest.npos || (behind > 1 && !all_of(rest.substr(1, behind - 1), kDigits))) return false;
  const std::string_view server = rest.substr(rest[0] == '[' ? behind + 1 : 0);
  return server.empty() || (server[0] == '.' && all_of(server.substr(1), kHost));
}

JobState job_state(const std::string& scheduler, const std::string& job) {
  int code = 0;
  JobState out;
  if (scheduler == "slurm") {
    const std::string line = trimmed(run_and_capture({"squeue", "-h", "-j", job, "-o", "%T|%R|%L"}, code));
    if (code != 0) return out;
    std::istringstream parts(line.substr(0, line.find('\n')));
    std::getline(parts, out.state, '|');
    std::getline(parts, out.reason, '|');
    std::getline(parts, out.left, '|');
    return out;
  }
  std::istringstream lines(run_and_capture({"qstat", "-f", job}, code));
  if (code != 0) return out;
  const std::map<std::string, std::string> names{
      {"Q", "PENDING"}, {"R", "RUNNING"}, {"H", "HELD"}, {"E", "COMPLETING"}, {"F", ""}};
  for (std::string line; std::getline(lines, line);) {
    const auto value = [&](const char* key) {
      const size_t at = line.find(key);
      return at == std::string::npos ? std::string() : trimmed(line.substr(line.find('=', at) + 1));
    };
    if (const std::string s = value("job_state ="); !s.empty()) out.state = names.count(s) ? names.at(s) : s;
    if (const std::string s = value("comment ="); !s.empty()) out.reason = s;
  }
  return out;
}

void cancel_job(const std::string& scheduler, const std::string& job) {
  int code = 0;
  std::string said;
  if (scheduler == "slurm") {
    // The batch script hands SIGTERM on to the launcher, so that the run saves. A job that waits has no script yet.
    const bool runs = job_state(scheduler, job).state == "RUNNING";
    said = runs ? run_and_capture({"scancel", "--batch", "--signal=TERM", job}, code)
                : run_and_capture({"scancel", job}, code);
  } else {
    said = run_and_capture({"qdel", job}, code);
  }
  require(code == 0, ExitCode::kUsage, "the scheduler refuses to cancel ", job, ": ", trimmed(said));
}

}  // namespace lockstep
