#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <sstream>

#include "core/base/log.h"
#include "core/io/files.h"
#include "data/import/tables/csv.h"
#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/records/goodput.h"
#include "launch/records/run_status.h"
#include "launch/report/page.h"
#include "launch/report/run_report.h"
#include "launch/sweep/record.h"
#include "launch/terminal/output.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

constexpr const char* kDefaultPage = "report.html";
constexpr size_t kMostRunsOfPage = 64;        // with curves
constexpr size_t kMostPageBytes = 4'500'000;  // of a page without attachments
constexpr int64_t kMostAttached = 2'000'000;  // bytes of a file
constexpr size_t kMostRows = 1000;            // of a table

// JSON within a script element: nothing in it ends the element or begins a comment.
std::string within_script(const std::string& json) {
  std::string out;
  out.reserve(json.size());
  for (const char c : json)
    if (c == '<') out += "\\u003c";
    else out += c;
  return out;
}

std::string base64(const std::string& bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t n = std::min<size_t>(3, bytes.size() - i);
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k) three = three << 8 | (k < n ? static_cast<unsigned char>(bytes[i + k]) : 0);
    for (size_t k = 0; k < 4; ++k) out += k <= n ? kDigits[three >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

JsonObject attachment(const std::string& path) {
  const auto file = open_if_there(path);
  require(file.has_value(), ExitCode::kMissingInput, "--attach ", path, ": there is no such file");
  require(file->size <= kMostAttached, ExitCode::kUsage, "--attach ", path, ": has ", file->size,
          " bytes; a file of a page has at most ", kMostAttached);
  const std::string bytes = read_some(*file, 0, static_cast<size_t>(file->size));
  JsonObject out{{"name", path}};
  const std::string png = "\x89PNG\r\n\x1a\n", jpeg = "\xff\xd8\xff";
  if (bytes.starts_with(png) || bytes.starts_with(jpeg)) {
    out.emplace_back("image", str("data:image/", bytes.starts_with(png) ? "png" : "jpeg", ";base64,", base64(bytes)));
    return out;
  }
  if (path.ends_with(".csv")) {
    std::vector<JsonValue> rows;
    CsvReader table(path, csv_separator(path));
    for (std::vector<std::string> row; rows.size() < kMostRows && table.next(row);)
      rows.emplace_back(json_array(std::vector<JsonValue>(row.begin(), row.end())));
    require(!rows.empty(), ExitCode::kBadData, "--attach ", path, ": is empty");
    out.emplace_back("rows", json_array(rows));
    return out;
  }
  out.emplace_back("text", bytes);
  return out;
}

// The points of a sweep: the best first.
JsonText sweep_json(const SweepRecord& record, const std::vector<PointResult>& results) {
  const std::string& metric = record.spec().ranking.metric;
  std::vector<std::string> measures;
  if (metric != "loss") measures.insert(measures.end(), {metric, "best_" + metric});
  measures.insert(measures.end(), {"loss", "best_loss"});
  std::vector<JsonObject> points;
  for (const PointResult& r : results) {
    const JsonObject all = record.json(r);
    JsonObject measured;
    for (const std::string& m : measures)
      if (const JsonValue* v = find_member(all, m)) measured.emplace_back(m, *v);
    points.push_back({{"name", SweepRecord::name(r.point)},
                      {"dir", record.point_dir(r.point)},
                      {"values", values_json(record.spec().grid, r.point)},
                      {"measures", JsonText{json_line(measured)}},
                      {"steps", r.steps}});
    if (r.end) points.back().emplace_back("code", static_cast<int64_t>(r.end->code));
  }
  const std::vector<std::string> keys = record.spec().grid.swept_keys();
  return {json_line({{"dir", record.dir()},
                     {"keys", json_array(std::vector<JsonValue>(keys.begin(), keys.end()))},
                     {"measures", json_array(std::vector<JsonValue>(measures.begin(), measures.end()))},
                     {"points", json_array(points)}})};
}

std::string page(const JsonObject& data) {
  std::string out = kPageHtml;
  const auto put = [&](std::string_view name, const std::string& text) {
    const size_t at = out.find(name);
    check(at != std::string::npos, "the page has no ", name);
    out.replace(at, name.size(), text);
  };
  // The data last: what it holds may look like one of the names.
  put("LOCKSTEP_STYLE", kPageStyle);
  put("LOCKSTEP_SCRIPT", kPageScript);
  put("LOCKSTEP_DATA", within_script(json_line(data)));
  return out;
}

struct PageContent {
  std::vector<std::string> runs;
  std::optional<JsonText> sweep;
  std::vector<JsonObject> attached;
};

// The tensors of the runs' models, about.modules, each list once; a run's `model` is its index.
JsonText shared_models(std::vector<JsonObject>& runs) {
  std::vector<JsonValue> lists;
  std::map<std::string, int64_t> known;
  for (JsonObject& run : runs) {
    const auto about = parse_json_object(text_of(run, "about"));
    if (!about) continue;
    JsonObject rest;
    for (const auto& [key, value] : *about)
      if (key != "modules") rest.emplace_back(key, value);
    if (const std::string list = text_of(*about, "modules"); list.starts_with('[')) {
      const auto [it, fresh] = known.try_emplace(list, std::ssize(lists));
      if (fresh) lists.emplace_back(JsonText{list});
      run.emplace_back("model", it->second);
    }
    for (auto& [key, value] : run)
      if (key == "about") value = JsonText{json_line(rest)};
  }
  return json_array(lists);
}

// With as many points as fit: a page of few runs shows them finely.
std::string fitted_page(const PageContent& content, std::vector<std::string>& left_out) {
  const JsonText attached = json_array(content.attached);
  size_t points = std::clamp<size_t>(6000 / std::max<size_t>(1, content.runs.size()), 250, 2000);
  for (;; points /= 2) {
    left_out.clear();
    std::vector<JsonObject> runs;
    for (const std::string& dir : content.runs) try {
        runs.push_back(run_report(dir, points));
      } catch (const Error& e) {
        if (content.runs.size() == 1) throw;
        left_out.emplace_back(e.what());
      }
    require(!runs.empty(), ExitCode::kMissingInput, left_out.empty() ? "there is no run to report" : left_out[0]);
    const JsonText models = shared_models(runs);
    JsonObject data{{"made", seconds_since_1970()},
                    {"version", std::string(kVersion)},
                    {"runs", json_array(runs)},
                    {"models", models},
                    {"attachments", attached}};
    if (content.sweep) data.emplace_back("sweep", *content.sweep);
    std::string out = page(data);
    if (out.size() <= kMostPageBytes + attached.text.size() || points <= 60) return out;
  }
}

// Every line of every run's metrics: a column for each key, in the order in which they come.
int64_t write_csv(const std::vector<std::string>& dirs, const std::string& path, bool replace) {
  std::vector<std::string> keys{"step"};
  std::set<std::string> known{"step"};
  const auto lines = [&](const std::string& dir, const std::function<void(const JsonObject&)>& use) {
    each_line(RunPaths{dir}.metrics(), [&](const std::string& text) {
      if (const auto line = parse_json_object(text); line && find_member(*line, "step")) use(*line);
    });
  };
  for (const std::string& dir : dirs)
    lines(dir, [&](const JsonObject& line) {
      for (const auto& [key, _] : line)
        if (known.insert(key).second) keys.push_back(key);
    });
  std::vector<std::string> cells{"run"};
  cells.insert(cells.end(), keys.begin(), keys.end());
  std::string text = csv_line(cells);
  int64_t count = 0;
  for (const std::string& dir : dirs)
    lines(dir, [&](const JsonObject& line) {
      cells.assign(1, dir);
      for (const std::string& key : keys) {
        const JsonValue* v = find_member(line, key);
        const auto* t = v ? std::get_if<std::string>(v) : nullptr;
        cells.push_back(t ? *t : !v || std::holds_alternative<std::nullptr_t>(*v) ? "" : json_text_of(*v));
      }
      text += csv_line(cells);
      ++count;
    });
  require(count > 0, ExitCode::kMissingInput, dirs[0],
          dirs.size() > 1 ? " and the others hold no step yet" : ": holds no step yet");
  write_output(path, text, replace);
  return count;
}

}  // namespace

std::vector<Command> report_forms() {
  return {
      {"report",
       "report RUN... [-o FILE.html] [--attach FILE ...] [--csv FILE] [--force]",
       "Writes one page (HTML, which needs no network) that shows runs side by side: curves of every metric, where\n"
       "the time and the memory went, the ranks, attempts, checkpoints and warnings, what differs between the\n"
       "configurations, and the model. Also of runs that go on. RUN may be the directory of a sweep: its points\n"
       "are shown, the best first. Long curves are thinned; the least and the greatest values stay.",
       {{"output,o", "the page's file", "FILE", kDefaultPage},
        {"csv", "in place of a page: every line of the metrics as a table, CSV", "FILE", ""},
        {"force", "replace an existing file; the page's default name is replaced without"},
        {"attach", "also show this file: PNG, JPEG, CSV (a confusion matrix) or text", "FILE", "", true}},
       1}};
}

int report_command(const App&, const std::vector<std::string>& given) {
  const Arguments a = parse_arguments(report_forms(), given);
  if (a.help || !is_first_process()) return 0;
  PageContent content;
  for (const std::string& dir : a.positional) {
    if (!SweepRecord::is_there(dir)) {
      content.runs.push_back(dir);
      continue;
    }
    require(!content.sweep, ExitCode::kUsage, dir, ": a page shows one sweep");
    const SweepRecord record(dir);
    const auto results = record.results();
    content.sweep = sweep_json(record, results);
    for (const PointResult& r : results)
      if (std::filesystem::exists(RunPaths{record.point_dir(r.point)}.metrics()))
        content.runs.push_back(record.point_dir(r.point));
  }
  if (const std::string& csv = a.text("csv"); !csv.empty()) {
    require(!content.runs.empty(), ExitCode::kMissingInput, a.positional[0],
            ": no point of this sweep has metrics yet");
    for (const std::string& dir : content.runs) read_run_status(dir, 1);  // refuses what is no directory
    print_out(str("wrote ", csv, ", ", write_csv(content.runs, csv, a.has("force")), " steps\n"));
    return 0;
  }
  std::string more;
  if (content.runs.size() > kMostRunsOfPage) {
    more = str("; only the first ", kMostRunsOfPage, " of ", content.runs.size(), " runs have curves");
    content.runs.resize(kMostRunsOfPage);
  }
  std::istringstream attached(a.text("attach"));
  for (std::string path; std::getline(attached, path);) content.attached.push_back(attachment(path));
  std::vector<std::string> left_out;
  const std::string text = fitted_page(content, left_out);
  const std::string output = a.text("output");
  // Its default name is this command's own, but whoever made a link or a device of that name meant something by it.
  const bool own = output == kDefaultPage && std::filesystem::is_regular_file(std::filesystem::symlink_status(output));
  if (own) log_info(str("replacing ", output));
  write_output(output, text, own || a.has("force"));
  for (const std::string& l : left_out) print_out(str("left out: ", l, "\n"));
  print_out(str("wrote ", output, ", ", content.runs.size() - left_out.size(),
                content.runs.size() - left_out.size() == 1 ? " run, " : " runs, ", text.size(), " bytes", more, "\n"));
  return 0;
}

}  // namespace lockstep
