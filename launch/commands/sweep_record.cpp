#include "launch/commands/sweep_record.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "launch/artifacts/files.h"
#include "launch/artifacts/text_table.h"

namespace lockstep {
namespace {

constexpr int64_t kSweepVersion = 1;
constexpr size_t kMostBytes = size_t{1} << 28;  // of sweep.json
constexpr const char* kData = "data";           // its list of dataset files

std::string shortest(double v) {
  char text[64];
  return {text, std::to_chars(text, text + sizeof text, v).ptr};
}

std::optional<double> finite_number(const JsonObject& object, std::string_view key) {
  const double v = number_of(object, key, std::numeric_limits<double>::quiet_NaN());
  return std::isfinite(v) ? std::optional(v) : std::nullopt;
}

}  // namespace

std::string csv_line(const std::vector<std::string>& cells) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) {
    out += i ? "," : "";
    if (cells[i].find_first_of(",\"\r\n") == std::string::npos) {
      out += cells[i];
      continue;
    }
    out += '"';
    for (char c : cells[i]) out += c == '"' ? std::string("\"\"") : std::string(1, c);
    out += '"';
  }
  return out + "\r\n";
}

std::string SweepRecord::name(int64_t point) {
  char text[32];
  std::snprintf(text, sizeof text, "%03lld", static_cast<long long>(point));
  return text;
}

JsonObject SweepRecord::head() const {
  std::vector<JsonObject> grid;
  for (const SweepKey& k : spec_.grid.keys)
    for (const std::string& value : k.values) grid.push_back({{"key", k.key}, {"value", value}, {"swept", k.swept}});
  std::vector<JsonObject> data;
  for (const auto& [file, identity] : spec_.data) data.push_back({{"path", file}, {"identity", identity}});
  return {{"version", kSweepVersion},      {"file", spec_.file},       {"ranks", static_cast<int64_t>(spec_.ranks)},
          {"points", spec_.grid.points()}, {"grid", json_array(grid)}, {"configuration", spec_.configuration},
          {kData, json_array(data)}};
}

// Nothing of a sweep that began before these were kept.
void SweepRecord::read_data(const JsonObject& there) {
  if (!find_member(there, kData)) return;
  const bool read = visit_json_list(json_text(there, kData, path()), [&](JsonObject&& o) {
    spec_.data[json_text(o, "path", path())] = json_text(o, "identity", path());
  });
  require(read, ExitCode::kBadData, path(), ": is damaged: its '", kData, "' is no list of files");
}

void SweepRecord::require_same_data(const std::map<std::string, std::string>& now) {
  for (const auto& [file, identity] : now) {
    const auto [before, is_new] = spec_.data.emplace(file, identity);
    require(before->second == identity, ExitCode::kBadData, file, ": changed since the sweep began: its identity is ",
            identity, ", and was ", before->second,
            ", so that results could not be compared; restore the file, or choose another --dir for a new sweep");
  }
}

void SweepRecord::lock(bool together) {
  lock_ = Descriptor(::open((dir_ + "/lock").c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644));
  if (!lock_) fail_write(dir_, errno);
  const bool taken = ::flock(lock_.number(), (together ? LOCK_SH : LOCK_EX) | LOCK_NB) != 0 && errno == EWOULDBLOCK;
  require(!taken, ExitCode::kOutputLocked, dir_, ": another `lockstep sweep` works in this directory");
}

SweepRecord::SweepRecord(std::string dir, SweepSpec spec, bool together)
    : dir_(std::move(dir)), spec_(std::move(spec)) {
  make_folder(dir_);
  lock(together);
  const std::string before = read_head(path(), kMostBytes);
  if (before.empty()) {
    for (int64_t p = 0; p < spec_.grid.points(); ++p)
      require(!RunDir::holds_a_run(point_dir(p)), ExitCode::kOutputLocked, point_dir(p),
              " already holds a run that is not of this sweep: choose another --dir");
    replace_file(path(), json_line(head()) + "\n");
    return;
  }
  const auto there = parse_json_object(before);
  require(there.has_value(), ExitCode::kBadData, path(), ": is damaged: it is no JSON object");
  const JsonObject mine = parse_json_object(json_line(head())).value();  // in the form of what was read
  read_data(*there);
  for (const auto& [key, value] : mine) {
    if (key == kData) continue;  // compared before each point
    const JsonValue* other = find_member(*there, key);
    require(other && *other == value, ExitCode::kOutputLocked, dir_, " holds another sweep: its ",
            key == "grid" || key == "points"
                ? std::string("keys and values")
                : str(key, key == "configuration" ? " (files or keys that shape results)" : ""),
            " differ; repeat the command as it was, or choose another --dir");
  }
}

SweepRecord::SweepRecord(std::string dir) : dir_(std::move(dir)) {
  const std::string text = read_head(path(), kMostBytes);
  require(!text.empty(), ExitCode::kMissingInput, path(), ": there is no such file: ", dir_,
          " is not the directory of a sweep");
  const auto there = parse_json_object(text);
  require(there && json_int(*there, "version", path()) == kSweepVersion, ExitCode::kBadData, path(),
          ": is damaged, or of another version of lockstep");
  spec_.file = json_text(*there, "file", path());
  spec_.configuration = json_text(*there, "configuration", path());
  spec_.ranks = static_cast<int>(json_int(*there, "ranks", path()));
  read_data(*there);
  const bool read = visit_json_list(json_text(*there, "grid", path()), [&](JsonObject&& o) {
    const std::string key = json_text(o, "key", path());
    const bool swept = json_bool(o, "swept").value_or(true);
    auto& keys = spec_.grid.keys;
    if (keys.empty() || keys.back().key != key || !swept) keys.push_back({key, {}, swept});
    keys.back().values.push_back(json_text(o, "value", path()));
  });
  const int64_t points = json_int(*there, "points", path());
  require(read && points <= SweepGrid::kMaxPoints && spec_.grid.points() == points, ExitCode::kBadData, path(),
          ": is damaged: its grid has not the points that it names");
}

std::optional<PointEnd> SweepRecord::end_of(int64_t point) const {
  const auto object = parse_json_object(read_head(point_dir(point) + "/point.json", 4096));
  if (!object) return {};
  const auto code = finite_number(*object, "exit_code");
  if (!code) return {};
  return PointEnd{static_cast<int>(*code), finite_number(*object, "seconds").value_or(0)};
}

void SweepRecord::write_end(int64_t point, const PointEnd& end) const {
  replace_file(point_dir(point) + "/point.json", json_line({{"exit_code", static_cast<int64_t>(end.code)},
                                                            {"seconds", std::round(end.seconds * 1000) / 1000}}) +
                                                     "\n");
}

PointResult SweepRecord::result(int64_t point) const {
  PointResult out;
  out.point = point;
  out.end = end_of(point);
  const std::string metrics = RunPaths{point_dir(point)}.metrics();
  const auto take = [&](const std::string& line, const char* key) {
    const auto object = parse_json_object(line);
    if (!object) return;
    if (const auto step = finite_number(*object, "step")) out.steps = static_cast<int64_t>(*step);
    if (!find_member(*object, key)) return;
    out.loss = finite_number(*object, key);
    if (out.loss) out.best = std::min(out.best.value_or(*out.loss), *out.loss);
  };
  std::string last;
  each_line(metrics, [&](const std::string& line) {
    if (line.find("\"val_loss\"") != line.npos) out.validation = true, take(line, "val_loss");
    last = line;
  });
  if (!out.validation) each_line(metrics, [&](const std::string& line) { take(line, "loss"); });
  else if (last.find("\"val_loss\"") == last.npos) take(last, "val_loss");  // for its step
  return out;
}

std::vector<PointResult> SweepRecord::results() const {
  std::vector<PointResult> out;
  for (int64_t p = 0; p < spec_.grid.points(); ++p) out.push_back(result(p));
  std::stable_sort(out.begin(), out.end(), [](const PointResult& a, const PointResult& b) {
    constexpr double kNone = std::numeric_limits<double>::infinity();
    return a.loss.value_or(kNone) < b.loss.value_or(kNone);
  });
  return out;
}

JsonText values_json(const SweepGrid& grid, int64_t point) {
  JsonObject out;
  const std::vector<std::string> keys = grid.swept_keys(), values = grid.values(point);
  for (size_t i = 0; i < keys.size(); ++i) out.emplace_back(keys[i], values[i]);
  return {json_line(out)};
}

JsonObject SweepRecord::json(const PointResult& r) const {
  const auto known = [](const std::optional<double>& v) { return v ? JsonValue(*v) : JsonValue(nullptr); };
  return {{"point", r.point},
          {"dir", point_dir(r.point)},
          {"values", values_json(spec_.grid, r.point)},
          {"loss", known(r.loss)},
          {"best_loss", known(r.best)},
          {"loss_of", std::string(r.validation ? "validation" : "training")},
          {"steps", r.steps},
          {"seconds", r.end ? JsonValue(r.end->seconds) : JsonValue(nullptr)},
          {"exit_code", r.end ? JsonValue(static_cast<int64_t>(r.end->code)) : JsonValue(nullptr)}};
}

std::vector<std::vector<std::string>> SweepRecord::cells(const std::vector<PointResult>& results, bool exact) const {
  std::vector<std::vector<std::string>> rows{{"point"}};
  for (const std::string& key : spec_.grid.swept_keys()) rows[0].push_back(key);
  rows[0].insert(rows[0].end(), {"loss", "best_loss", "loss_of", "steps", "seconds", "exit_code"});
  const std::string none = exact ? "" : "-";
  const auto shown = [&](double v, int digits) { return exact ? shortest(v) : fixed(v, digits); };
  for (const PointResult& r : results) {
    rows.push_back({name(r.point)});
    for (const std::string& value : spec_.grid.values(r.point)) rows.back().push_back(value);
    rows.back().insert(rows.back().end(), {r.loss ? shown(*r.loss, 4) : none, r.best ? shown(*r.best, 4) : none,
                                           r.validation ? "validation" : "training", str(r.steps),
                                           r.end ? shown(r.end->seconds, 1) : none, r.end ? str(r.end->code) : none});
  }
  return rows;
}

std::string SweepRecord::table(const std::vector<PointResult>& results) const {
  return text_table(cells(results, false));
}

void SweepRecord::write(const std::vector<PointResult>& results) const {
  std::string csv;
  for (const auto& row : cells(results, true)) csv += csv_line(row);
  replace_file(dir_ + "/sweep.csv", csv);
  std::vector<JsonObject> lines;
  for (const PointResult& r : results) lines.push_back(json(r));
  JsonObject all = head();
  all.emplace_back("results", json_array(lines));
  replace_file(path(), json_line(all) + "\n");
}

}  // namespace lockstep
