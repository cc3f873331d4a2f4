#include "launch/report/run_report.h"

#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <filesystem>
#include <map>
#include <optional>

#include "core/base/error.h"
#include "core/io/files.h"
#include "core/state/checkpoint.h"
#include "launch/config/config_tree.h"
#include "launch/records/goodput.h"
#include "launch/records/metrics.h"
#include "launch/records/run_dir.h"
#include "launch/records/run_status.h"
#include "launch/report/curve.h"
#include "launch/report/findings.h"

namespace lockstep {
namespace {

constexpr size_t kColumns = 160;         // of the strip of rank times
constexpr size_t kMostEvents = 400;      // of each kind
constexpr size_t kMostCurves = 400;      // a foreign file may have a key a line
constexpr size_t kMostFacts = 8 << 20;   // bytes of about.json
constexpr size_t kHistogramBytes = 256;  // of histograms for each point of a curve: a page of few runs has more of both

// Keys that are no metric to plot, or that are drawn in another way.
bool is_curve(const std::string& key) { return key != "step" && key != "rank_ms" && key != "checkpoint_s"; }

struct MetricLines {
  std::map<std::string, Curve> curves;
  std::vector<std::string> order;  // of the curves, as they came
  RankTimes ranks{kColumns};
  int64_t steps = 0, unreadable = 0, last_step = -1, skipped = 0, left_out = 0;
};

void read_ranks(const JsonObject& line, int64_t step, RankTimes& ranks) {
  const auto list = parse_json_array(text_of(line, "rank_ms"));
  if (!list || list->empty()) return;
  std::vector<double> ms;
  for (const JsonValue& v : *list) ms.push_back(as_number(v).value_or(0));
  ranks.add(step, ms);
}

// `begun`: when the run's first attempt did, since 1970; times are since then.
MetricLines read_lines(const std::string& path, size_t points, double begun) {
  MetricLines out;
  each_line(path, [&](const std::string& text) {
    const auto line = parse_json_object(text);
    const JsonValue* at = line ? find_member(*line, "step") : nullptr;
    const auto* step = at ? std::get_if<int64_t>(at) : nullptr;
    if (!step || *step < out.last_step) {
      ++out.unreadable;
      return;
    }
    out.last_step = *step;
    ++out.steps;
    read_ranks(*line, *step, out.ranks);
    for (const auto& [key, value] : *line) {
      if (key == "skipped") ++out.skipped;
      if (!is_curve(key)) continue;
      auto v = as_number(value);
      if (!v) continue;
      if (key == "time") *v -= begun > 0 ? begun : (begun = *v);
      auto it = out.curves.find(key);
      if (it == out.curves.end()) {
        if (out.curves.size() == kMostCurves) {
          ++out.left_out;
          continue;
        }
        it = out.curves.emplace(key, Curve(points)).first;
        out.order.push_back(key);
      }
      it->second.add(*step, *v);
    }
  });
  return out;
}

JsonText curves_json(const MetricLines& lines) {
  std::string out = "{";
  for (const std::string& key : lines.order) {
    if (out.size() > 1) out += ',';
    out += json_text_of(key) + ":" + lines.curves.at(key).json();
  }
  return {out + "}"};
}

double modified(const std::string& path) {
  struct stat st = {};
  return ::stat(path.c_str(), &st) == 0 ? static_cast<double>(st.st_mtim.tv_sec) : 0;
}

// Of a log's line, whose time is the machine's local one; 0 for what is no time.
double local_seconds(const std::string& text) {
  std::tm parts{};
  if (::strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return 0;
  parts.tm_isdst = -1;
  return static_cast<double>(std::mktime(&parts));
}

// What a launcher and the run said beside their steps: warnings and errors of the log, the newest.
// What it advises goes to `found`.
JsonText warnings_of(const std::string& path, std::vector<JsonValue>& found) {
  std::vector<JsonObject> out;
  each_line(path, [&](const std::string& line) {  // "2026-11-27T05:10:00.123 warning text"
    const size_t level = line.find(' '), text = level == line.npos ? line.npos : line.find(' ', level + 1);
    if (text == line.npos) return;
    const std::string word = line.substr(level + 1, text - level - 1);
    if (line.find("would wait less: comm.bucket=") != line.npos) found.emplace_back(line.substr(text + 1));
    if (word != "warning" && word != "error") return;
    if (out.size() == 2 * kMostEvents) out.erase(out.begin(), out.begin() + kMostEvents);
    out.push_back({{"time", local_seconds(line.substr(0, level))},
                   {"at", line.substr(0, level)},
                   {"level", word},
                   {"text", line.substr(text + 1)}});
  });
  if (out.size() > kMostEvents) out.erase(out.begin(), out.end() - kMostEvents);
  return json_array(out);
}

JsonText attempts_of(const std::string& path) {
  std::vector<JsonObject> out;
  each_line(path, [&](const std::string& line) {
    if (auto o = parse_json_object(line); o && out.size() < kMostEvents) out.push_back(std::move(*o));
  });
  return json_array(out);
}

JsonText checkpoints_of(const std::string& dir) {
  std::vector<JsonObject> out;
  for (const std::string& path : list_checkpoints(dir)) {
    if (out.size() == kMostEvents) break;
    out.push_back({{"step", step_of_checkpoint(path)}, {"path", path}, {"time", modified(path + "/manifest.json")}});
  }
  return json_array(out);
}

// Lines of some steps, evenly spread, and the last: {"step":100,"blocks.0":[[bucket,count],...],...}, of the first
// tensors by name, in at most `most_bytes` together.
JsonText histograms_of(const std::string& path, size_t most_bytes, std::vector<std::string>& problems) {
  constexpr size_t kMostLines = 16, kMostTensors = 120;
  std::vector<JsonObject> kept;
  std::optional<JsonObject> last;  // where it is not kept
  int64_t seen = 0, every = 1;
  each_line(path, [&](const std::string& line) {
    auto o = parse_json_object(line);
    if (!o) return;
    last.reset();
    if (seen++ % every != 0) {
      last = std::move(o);
      return;
    }
    kept.push_back(std::move(*o));
    if (kept.size() < kMostLines) return;
    every *= 2;  // every second one of those so far
    for (size_t i = 1; 2 * i < kept.size(); ++i) kept[i] = std::move(kept[2 * i]);
    kept.resize((kept.size() + 1) / 2);
  });
  if (last) kept.push_back(std::move(*last));
  // By name, so that the histograms of as many steps as there are of one tensor come before those of the next.
  std::map<std::string_view, std::vector<const JsonValue*>> tensors;  // by name, of each line; null: it has none
  std::vector<JsonObject> out(kept.size());
  for (size_t i = 0; i < kept.size(); ++i)
    for (const auto& [name, counts] : kept[i]) {
      if (name == "step") {
        out[i].emplace_back(name, counts);
        continue;
      }
      auto& of_name = tensors[name];
      of_name.resize(kept.size());
      of_name[i] = &counts;
    }
  size_t bytes = 0, shown = 0;
  for (const auto& [name, of_name] : tensors) {
    if (shown == kMostTensors) break;
    size_t more = 0;
    for (const JsonValue* counts : of_name)
      if (const auto* text = counts ? std::get_if<JsonText>(counts) : nullptr) more += name.size() + text->text.size();
    if (bytes + more > most_bytes) continue;
    bytes += more;
    ++shown;
    for (size_t i = 0; i < kept.size(); ++i)
      if (of_name[i]) out[i].emplace_back(std::string(name), *of_name[i]);
  }
  if (shown < tensors.size())
    problems.push_back(
        str(path, ": histograms of ", tensors.size() - shown, " of ", tensors.size(), " tensors are not on this page"));
  return json_array(out);
}

JsonText goodput_json(const Goodput& g) {
  const auto part = [](double s) { return JsonValue(std::round(1e3 * s) / 1e3); };
  return {json_line({{"attempts", g.attempts},
                     {"first", part(g.first)},
                     {"wall", part(g.wall)},
                     {"steps", part(g.steps)},
                     {"start", part(g.start)},
                     {"data", part(g.data)},
                     {"validation", part(g.validation)},
                     {"saving", part(g.saving)},
                     {"repeated", part(g.repeated)},
                     {"down", part(g.down)},
                     {"other", part(g.other())}})};
}

// By key path, "optim.lr", as text; lists stand as "[a, b]", maps in them as "{key: value}".
void flatten(const ConfigNode& node, const std::string& path, JsonObject& out) {
  if (node.kind == ConfigNode::Kind::kMap) {
    for (const ConfigNode& child : node.children)
      flatten(child, path.empty() ? child.key : path + "." + child.key, out);
    return;
  }
  std::string text = node.scalar;
  if (node.kind == ConfigNode::Kind::kList) {
    text.clear();
    for (const ConfigNode& child : node.children) {
      JsonObject item;
      flatten(child, "", item);
      const bool plain = item.size() == 1 && item[0].first.empty();
      std::string one;
      for (auto& [key, value] : item)
        one += str(one.empty() ? "" : ", ", key, key.empty() ? "" : ": ", std::get<std::string>(value));
      text += str(text.empty() ? "" : ", ", plain ? one : "{" + one + "}");
    }
    text = "[" + text + "]";
  }
  out.emplace_back(path, text);
}

// Something went wrong with a part of the directory: the rest is shown all the same.
template <class Part>
void part_of(std::vector<std::string>& problems, Part part) {
  try {
    part();
  } catch (const Error& e) {
    problems.emplace_back(e.what());
  } catch (const std::filesystem::filesystem_error& e) {
    problems.emplace_back(e.what());
  }
}

}  // namespace

JsonObject run_report(const std::string& dir, size_t points) {
  const RunPaths paths{dir};
  const RunStatus status = read_run_status(dir, 1);
  const auto there = [](const std::string& path) {
    std::error_code error;
    return std::filesystem::exists(path, error);
  };
  require(status.state != "no run" || there(paths.config()) || there(paths.log()), ExitCode::kMissingInput, dir,
          ": this directory holds no run: neither metrics nor checkpoints, configuration or log");
  std::vector<std::string> problems;
  std::vector<JsonValue> found;
  JsonObject out{{"dir", dir}, {"state", status.state}, {"total", status.total}};
  const std::string name = std::filesystem::path(dir).lexically_normal().filename().string();
  out.emplace_back("name", name.empty() || name == "." ? dir : name);
  if (!status.failure.empty()) {
    out.emplace_back("failure", status.failure);
    out.emplace_back("failure_code", status.failure_code);
    out.emplace_back("failure_time", modified(paths.failure()));
  }
  double begun = 0;
  part_of(problems, [&] {
    const Goodput goodput = read_goodput(dir);
    begun = goodput.first;
    out.emplace_back("goodput", goodput_json(goodput));
  });
  part_of(problems, [&] {
    const MetricLines lines = read_lines(paths.metrics(), points, begun);
    if (lines.steps == 0) problems.push_back(paths.metrics() + ": holds no step yet");
    if (lines.unreadable > 0)
      problems.push_back(str(paths.metrics(), ": ", lines.unreadable,
                             lines.unreadable == 1 ? " line is no metric or not in order; it is left out"
                                                   : " lines are no metrics or not in order; they are left out"));
    if (lines.left_out > 0)
      problems.push_back(str(paths.metrics(), ": only the first ", kMostCurves, " metrics are shown"));
    out.emplace_back("steps", std::max<int64_t>(0, lines.last_step));
    out.emplace_back("skipped", lines.skipped);
    out.emplace_back("curves", curves_json(lines));
    NamedCurves curves;
    for (const std::string& name : lines.order) curves.emplace_back(name, &lines.curves.at(name));
    for (std::string& f : findings(curves)) found.emplace_back(std::move(f));
    if (!lines.ranks.empty()) {
      out.emplace_back("ranks", JsonText{lines.ranks.json()});
      if (const auto slow = lines.ranks.straggler()) {
        out.emplace_back("straggler", int64_t{slow->rank});
        out.emplace_back("straggler_times", std::round(100 * slow->times) / 100);
      }
    }
  });
  part_of(problems, [&] {
    out.emplace_back("histograms", histograms_of(paths.histograms(), points * kHistogramBytes, problems));
  });
  part_of(problems, [&] {
    const std::string text = read_head(paths.about(), kMostFacts);
    if (text.empty()) return;
    require(parse_json_object(text).has_value(), ExitCode::kBadData, paths.about(), ": is no JSON object");
    out.emplace_back("about", JsonText{text});
  });
  part_of(problems, [&] { out.emplace_back("warnings", warnings_of(paths.log(), found)); });
  part_of(problems, [&] { out.emplace_back("attempts", attempts_of(paths.attempts())); });
  part_of(problems, [&] { out.emplace_back("checkpoints", checkpoints_of(dir)); });
  JsonObject config;
  part_of(problems, [&] { flatten(ConfigTree::load(paths.config()).root(), "", config); });
  out.emplace_back("config", JsonText{json_line(config)});
  std::vector<JsonValue> said(problems.begin(), problems.end());
  out.emplace_back("findings", json_array(found));
  out.emplace_back("problems", json_array(said));
  return out;
}

}  // namespace lockstep
