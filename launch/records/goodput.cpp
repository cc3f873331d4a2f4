#include "launch/records/goodput.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iterator>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/base/error.h"
#include "core/base/host.h"
#include "core/base/text_table.h"
#include "core/io/append_file.h"
#include "core/io/files.h"
#include "core/io/json.h"
#include "launch/records/metrics.h"
#include "launch/records/run_dir.h"

namespace lockstep {
namespace {

struct TimedStep {
  double begin = 0, end = 0;
};

// A number of a line that lockstep wrote, without parsing all of it: there may be a million lines. 0: it has none.
double number_in(const std::string& line, std::string_view key) {
  const size_t at = line.find(key);
  if (at == std::string::npos || !line.ends_with('}')) return 0;
  double value = 0;
  const char* begin = line.data() + at + key.size();
  return std::from_chars(begin, line.data() + line.size(), value).ec == std::errc() ? value : 0;
}

}  // namespace

double seconds_since_1970() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return static_cast<double>(std::chrono::duration_cast<std::chrono::milliseconds>(now).count()) / 1e3;
}

Goodput read_goodput(const std::string& dir, double now) {
  const RunPaths paths{dir};
  Goodput g;
  std::vector<double> begins;
  each_line(paths.attempts(), [&](const std::string& line) {
    if (const double begun = number_in(line, "\"begun\":"); begun > 0) begins.push_back(begun);
  });
  std::sort(begins.begin(), begins.end());
  std::vector<TimedStep> steps;
  const auto read = [&](const std::string& path, bool counts) {
    each_line(path, [&](const std::string& line) {
      const double end = number_in(line, "\"time\":"), took = number_in(line, "\"step_ms\":") / 1e3,
                   data = number_in(line, "\"data_ms\":") / 1e3, validated = number_in(line, "\"validation_s\":");
      if (end <= 0) return;
      steps.push_back({end - validated - took, end});
      g.validation += validated;
      g.saving += number_in(line, "\"checkpoint_stall_ms\":") / 1e3;
      if (!counts) {
        g.repeated += took;
        return;
      }
      g.steps += took - std::min(data, took);
      g.data += std::min(data, took);
    });
  };
  read(paths.metrics(), true);
  read(earlier_metrics(paths.metrics()), false);
  std::sort(steps.begin(), steps.end(), [](const TimedStep& a, const TimedStep& b) { return a.end < b.end; });
  g.attempts = static_cast<int64_t>(begins.size());
  // Of runs that are older than this record, the first step is the begin.
  g.first = !begins.empty() ? begins[0] : steps.empty() ? 0 : steps[0].begin;
  if (!steps.empty()) g.first = std::min(g.first, steps[0].begin);
  const double last = std::max({now, steps.empty() ? 0.0 : steps.back().end, begins.empty() ? 0.0 : begins.back()});
  g.wall = g.first > 0 ? std::max(0.0, last - g.first) : 0;
  for (size_t i = 0; i < begins.size(); ++i) {
    const auto after = std::upper_bound(steps.begin(), steps.end(), begins[i],
                                        [](double begun, const TimedStep& s) { return begun < s.end; });
    const double next = i + 1 < begins.size() ? begins[i + 1] : last;
    g.start += (after == steps.end() ? next : std::clamp(after->begin, begins[i], next)) - begins[i];
    // An attempt that did no step is all start.
    if (i > 0 && after != steps.begin() && std::prev(after)->end > begins[i - 1])
      g.down += begins[i] - std::prev(after)->end;
  }
  return g;
}

std::string to_text(const Goodput& g) {
  std::vector<std::pair<double, const char*>> rest{
      {g.start, "start"},   {g.data, "waits for data"},     {g.validation, "validation"},
      {g.saving, "saving"}, {g.repeated, "repeated steps"}, {g.down, "between attempts"},
      {g.other(), "other"}};
  std::sort(rest.begin(), rest.end(), [](const auto& a, const auto& b) { return a.first > b.first; });
  const auto percent = [&](double s) { return g.wall > 0 ? std::round(100 * s / g.wall) : 0; };
  std::string out = str("goodput ", percent(g.steps), "%: of ", fixed(g.wall, 0), " s in ", g.attempts,
                        g.attempts == 1 ? " attempt" : " attempts");
  for (const auto& [seconds, name] : rest)
    if (percent(seconds) >= 1) out += str(", ", percent(seconds), "% ", name);
  return out;
}

void begin_attempt(const std::string& dir, int64_t step, int ranks) {
  AppendFile file(RunPaths{dir}.attempts());
  file.append(json_line({{"begun", std::round(1e3 * (seconds_since_1970() - process_age())) / 1e3},
                         {"step", step},
                         {"ranks", int64_t{ranks}}}) +
              "\n");
}

}  // namespace lockstep
