#include <fcntl.h>
#include <poll.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "core/base/log.h"
#include "core/base/text_table.h"
#include "core/io/files.h"
#include "core/io/json.h"
#include "launch/arguments/command_line.h"
#include "launch/cluster/cancel.h"
#include "launch/cluster/submitted.h"
#include "launch/commands/commands.h"
#include "launch/records/prometheus.h"
#include "launch/records/run_dir.h"
#include "launch/records/run_status.h"
#include "launch/sweep/record.h"
#include "launch/terminal/output.h"
#include "launch/terminal/progress.h"
#include "launch/terminal/terminal.h"

namespace lockstep {
namespace {

struct Seen {
  RunStatus run;
  std::optional<SubmittedJob> job;
  JobState job_state;
  std::string state() const {
    if (run.state == "running" || job_state.state.empty()) return run.state;
    return job_state.state == "RUNNING" ? "starting" : "queued";
  }
};

Seen see(const std::string& dir) {
  Seen out{read_run_status(dir), submitted_job(dir), {}};
  if (out.job) out.job_state = job_state(out.job->scheduler, out.job->id);
  return out;
}

std::string member(const JsonObject& o, std::string_view key) {
  const JsonValue* v = find_member(o, key);
  if (const auto* s = v ? std::get_if<std::string>(v) : nullptr) return *s;
  if (const auto* i = v ? std::get_if<int64_t>(v) : nullptr) return str(*i);
  if (const auto* d = v ? std::get_if<double>(v) : nullptr) return fixed(*d, 1);
  return {};
}

// ", job 7 of slurm has ended"; empty where there is none.
std::string job_text(const Seen& s) {
  if (!s.job) return "";
  const std::string job = str(", job ", s.job->id, " of ", s.job->scheduler);
  if (s.job_state.state.empty()) return job + " has ended";
  return str(job, " is ", s.job_state.state, " (", s.job_state.reason, "), ", s.job_state.left, " left");
}

std::string summary(const std::string& dir, const Seen& s) {
  const RunStatus& r = s.run;
  std::string out = str(dir, ": ", s.state(), job_text(s));
  if (r.process > 0) out += str(", process ", r.process, " on ", r.host);
  if (const std::string attempt = member(r.launcher, "attempt"); !attempt.empty() && attempt != "1")
    out += str(", attempt ", attempt);
  out += "\n";
  if (!r.losses.empty()) {
    out += str("step          ", r.step, r.total > 0 ? str(" of ", r.total) : "", ", ", short_time(r.metrics_age_s),
               " ago\n");
    out += str("loss          ", fixed(r.loss, 4), "\n");
    if (r.validation_loss >= 0)
      out += str("validation    ", fixed(r.validation_loss, 4), " after step ", r.validation_step, "\n");
    out += str("rate          ", short_number(r.rate), " ", r.rate_unit, "/s\n");
    if (r.goodput >= 0)
      out += str("goodput       ", fixed(100 * r.goodput, 0), "% of the time became steps that count\n");
    if (s.state() == "running" && r.total > r.step)
      out += str("left          ", short_time(static_cast<double>(r.total - r.step) * r.step_ms / 1e3), "\n");
  }
  if (!r.checkpoint.empty()) out += str("checkpoint    ", r.checkpoint, ", ", short_time(r.checkpoint_age_s), " ago\n");
  if (!r.failure.empty()) out += str("failure       exit code ", r.failure_code, ": ", r.failure, "\n");
  return out;
}

void add_job(const Seen& s, JsonObject& o) {
  if (!s.job) return;
  o.emplace_back("job", s.job->id);
  o.emplace_back("job_state", s.job_state.state);
}

JsonObject as_json(const std::string& dir, const Seen& s) {
  const RunStatus& r = s.run;
  JsonObject o{{"run", dir},           {"state", s.state()}, {"step", r.step},           {"steps", r.total},
               {"loss", r.loss},       {"rate", r.rate},     {"rate_unit", r.rate_unit}, {"checkpoint", r.checkpoint},
               {"process", r.process}, {"host", r.host}};
  if (r.validation_loss >= 0) o.emplace_back("validation_loss", r.validation_loss);
  if (r.goodput >= 0) o.emplace_back("goodput", r.goodput);
  if (!r.failure.empty()) {
    o.emplace_back("exit_code", r.failure_code);
    o.emplace_back("failure", r.failure);
  }
  add_job(s, o);
  return o;
}

// The last `width` values as bars between their least and greatest.
std::string sparkline(const std::vector<double>& all, size_t width) {
  static const char* const bars[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  std::vector<double> finite;
  for (double v : all)
    if (std::isfinite(v)) finite.push_back(v);
  if (finite.empty() || width == 0) return {};
  std::vector<double> shown(std::min(width, finite.size()));
  for (size_t i = 0; i < shown.size(); ++i) {  // means of equal parts
    const size_t begin = i * finite.size() / shown.size(),
                 end = std::max(begin + 1, (i + 1) * finite.size() / shown.size());
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += finite[j];
    shown[i] = sum / static_cast<double>(end - begin);
  }
  const auto [low, high] = std::minmax_element(shown.begin(), shown.end());
  const double span = std::max(*high - *low, 1e-12);
  std::string out;
  for (double v : shown) out += bars[std::clamp(static_cast<int>((v - *low) / span * 8), 0, 7)];
  return out;
}

std::string rank_table(const RunStatus& r) {
  std::vector<std::vector<std::string>> rows{{"rank", "host", "state", "step", "step ms", "waits ms", "CPU s", "in"}};
  for (const JsonObject& o : r.ranks)
    rows.push_back({member(o, "rank"), member(o, "host"), member(o, "state"), member(o, "step"), member(o, "step_ms"),
                    member(o, "waited_ms"), member(o, "cpu_s"), member(o, "doing")});
  return rows.size() > 1 ? text_table(rows) : std::string();
}

constexpr size_t kLogPiece = 1 << 20;  // of a log, read at a time

volatile std::sig_atomic_t interrupted = 0;

// The terminal as it was before is there again at the end.
class Screen {
 public:
  Screen() {
    ::tcgetattr(STDIN_FILENO, &before_);
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &raw);
    put("\x1b[?1049h\x1b[?25l");
  }
  ~Screen() {
    put("\x1b[?25h\x1b[?1049l");
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  static void put(const std::string& text) { (void)!::write(STDOUT_FILENO, text.data(), text.size()); }
  static int width() { return terminal_columns(STDOUT_FILENO); }

 private:
  termios before_{};
};

std::string view(const std::string& dir, const Seen& s, int width) {
  std::string out = summary(dir, s);
  if (!s.run.losses.empty())
    out += str("\nloss  ", sparkline(s.run.losses, static_cast<size_t>(std::max(10, width - 8))), "\n");
  if (const std::string table = rank_table(s.run); !table.empty()) out += "\n" + table;
  return out;
}

// Of its directory, which holds no run itself.
std::string status_of_sweep(const std::string& dir, const Seen& s, bool as_json) {
  const SweepRecord record(dir);
  const std::vector<PointResult> results = record.results();
  if (!as_json)
    return str(dir, ": a sweep of ", results.size(), results.size() == 1 ? " point" : " points", job_text(s),
               "; 'lockstep sweep --collect ", dir, "' writes this table\n", record.table(results));
  std::vector<JsonObject> points;
  for (const PointResult& r : results) points.push_back(record.json(r));
  JsonObject out{{"sweep", dir}, {"points", json_array(points)}};
  add_job(s, out);
  return json_line(out) + "\n";
}

}  // namespace

std::vector<Command> status_forms() {
  return {{"status",
           "status RUN... [--json | --prometheus]",
           "Says how a run is doing, from its run directory: running, queued, finished, stopped or failed, its step, "
           "loss,\n"
           "rate, last checkpoint and failure. Also of runs that `lockstep submit` gave to a scheduler. Of the "
           "directory of a "
           "sweep: the\n"
           "table of its points.",
           {{"json", "print one JSON object per run"},
            {"prometheus", "print all runs in Prometheus's text format, as for node_exporter's textfile collector"}},
           1}};
}

int status_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(status_forms(), given);
  if (a.help) return 0;
  if (a.has("prometheus")) {
    std::vector<std::pair<std::string, RunStatus>> runs;
    for (const std::string& dir : a.positional) runs.emplace_back(dir, read_run_status(dir));
    print_out(prometheus_text(runs));
    return 0;
  }
  for (const std::string& dir : a.positional) {
    const Seen s = see(dir);
    print_out(SweepRecord::is_there(dir) ? status_of_sweep(dir, s, a.has("json"))
              : a.has("json")            ? json_line(as_json(dir, s)) + "\n"
                                         : summary(dir, s));
  }
  return 0;
}

std::vector<Command> logs_forms() {
  return {{"logs",
           "logs RUN [-f] [--job]",
           "Prints the log of a run; with -f also what is added, until the run ends.",
           {{"follow,f", "wait for more"}, {"job", "the output of its batch job instead"}},
           1,
           1}};
}

int logs_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(logs_forms(), given);
  if (a.help) return 0;
  const std::string dir = a.positional[0];
  read_run_status(dir, 1);
  const auto path = [&] {
    const std::string log = RunPaths{dir}.log();
    return a.has("job") || !std::filesystem::exists(log) ? job_output(dir) : log;
  };
  require(!path().empty() || a.has("follow"), ExitCode::kMissingInput, dir, ": there is no log yet");
  std::optional<InputFile> file;
  int64_t shown = 0;
  for (int idle = 0;;) {
    if (!file) file = open_if_there(path());
    for (std::string text; file && !(text = read_some(*file, shown, kLogPiece)).empty(); idle = 0) {
      // Characters of several bytes are not cut apart.
      if (const size_t end = text.rfind('\n'); text.size() == kLogPiece && end != std::string::npos)
        text.resize(end + 1);
      print_out(text);
      shown += static_cast<int64_t>(text.size());
    }
    if (!a.has("follow")) return 0;
    ::usleep(200'000);
    if (++idle % 5 == 0) {
      const std::string state = see(dir).state();
      if (idle > 10 && state != "running" && state != "queued" && state != "starting") return 0;
    }
  }
}

std::vector<Command> cancel_forms() {
  return {{"cancel",
           "cancel RUN",
           "Lets a run save and end, on this machine or as a batch job. It can be resumed.",
           {},
           1,
           1}};
}

int cancel_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(cancel_forms(), given);
  if (a.help) return 0;
  const std::string dir = a.positional[0];
  const Seen s = see(dir);
  std::vector<std::string> ids;
  if (s.job && !s.job_state.state.empty()) ids.push_back(s.job->id);
  if (s.job)
    for (const std::string& id : further_jobs(dir))
      if (!job_state(s.job->scheduler, id).state.empty()) ids.push_back(id);
  if (!ids.empty()) {
    const std::string mark = job_folder(dir) + "/cancelled";  // a PBS script then does not submit itself again
    if (!open_to_append(mark)) fail_write(mark, errno);
    for (const std::string& id : ids) {
      cancel_job(s.job->scheduler, id);
      print_out(str("cancelled job ", id, "; if it was running, it saves first\n"));
    }
    return 0;
  }
  require(s.run.state == "running", ExitCode::kUsage, dir, ": nothing to cancel, it is ", s.run.state);
  const int64_t process = ask_to_end(dir, s.run);
  print_out(str("asked process ", process, " to save and end\n"));
  return 0;
}

std::vector<Command> top_forms() {
  return {{"top",
           "top RUN [--once]",
           "Shows a run live: loss, rates, last checkpoint, and where each rank stands, for runs under "
           "`lockstep launch` or\n"
           "`submit`. q ends it.",
           {{"once", "print it once"}},
           1,
           1}};
}

int top_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(top_forms(), given);
  if (a.help) return 0;
  const std::string dir = a.positional[0];
  if (a.has("once") || ::isatty(STDOUT_FILENO) != 1 || ::isatty(STDIN_FILENO) != 1) {
    print_out(view(dir, see(dir), 80));
    return 0;
  }
  std::signal(SIGINT, [](int) { interrupted = 1; });
  const Screen screen;
  while (!interrupted) {
    std::string text = view(dir, see(dir), Screen::width());
    for (size_t at = 0; (at = text.find('\n', at)) != std::string::npos; at += 5) text.replace(at, 1, "\x1b[K\r\n");
    Screen::put("\x1b[H" + text + "\x1b[J");
    pollfd key{STDIN_FILENO, POLLIN, 0};
    char c = 0;
    if (::poll(&key, 1, 1000) == 1 && (::read(STDIN_FILENO, &c, 1) != 1 || c == 'q')) break;
  }
  return 0;
}

}  // namespace lockstep
