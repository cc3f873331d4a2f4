#include "launch/sweep/record.h"

#include <fcntl.h>
#include <sys/file.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/base/text_table.h"
#include "core/io/files.h"

namespace lockstep {
namespace {

constexpr int64_t kSweepVersion = 1;
constexpr const char* kLoss = "loss";
constexpr size_t kMostBytes = size_t{1} << 28;  // of sweep.json
constexpr const char* kData = "data";           // its list of dataset files
constexpr const char* kSeed = "seed";           // of a random search
constexpr const char* kHalving = "halving";
constexpr const char* kRanking = "ranking";

std::optional<double> finite_number(const JsonObject& object, std::string_view key) {
  const double v = number_of(object, key, std::numeric_limits<double>::quiet_NaN());
  return std::isfinite(v) ? std::optional(v) : std::nullopt;
}

}  // namespace

std::vector<std::string> SweepSpec::overrides(int64_t point) const {
  std::vector<std::string> out = grid.overrides(point);
  out.insert(out.end(), for_ranking.begin(), for_ranking.end());
  if (!without.empty())
    for (const std::string& key : without[static_cast<size_t>(point)]) out.push_back("~" + key);
  return out;
}

bool PointEnd::reached(int64_t steps) const {
  return std::any_of(rungs.begin(), rungs.end(), [&](const RungEnd& r) { return r.steps == steps; });
}

std::string csv_line(const std::vector<std::string>& cells) {
  std::string out;
  for (size_t i = 0; i < cells.size(); ++i) out += (i ? "," : "") + csv_cell(cells[i]);
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
  JsonObject out{
      {"version", kSweepVersion},      {"file", spec_.file},       {"ranks", static_cast<int64_t>(spec_.ranks)},
      {"points", spec_.grid.points()}, {"grid", json_array(grid)}, {"configuration", spec_.configuration},
      {kData, json_array(data)}};
  if (spec_.draws) out.emplace_back(kSeed, static_cast<int64_t>(spec_.draws->seed));
  if (const auto& h = spec_.halving)
    out.emplace_back(kHalving,
                     JsonText{json_line({{"eta", h->eta}, {"first", h->first}, {"steps", h->steps}, {"by", h->by}})});
  return out;
}

JsonText SweepRecord::ranking_json() const {
  const SweepRanking& r = spec_.ranking;
  return {json_line({{"metric", r.metric},
                     {"mode", std::string(r.highest ? "max" : "min")},
                     {"by", std::string(r.by_best ? "best" : "last")}})};
}

// That of a sweep that began before it could be chosen is the last loss.
void SweepRecord::read_ranking(const JsonObject& there) {
  if (!find_member(there, kRanking)) return;
  const auto ranking = parse_json_object(json_text(there, kRanking, path()));
  require(ranking.has_value(), ExitCode::kBadData, path(), ": is damaged: its '", kRanking, "' is no object");
  spec_.ranking = {json_text(*ranking, "metric", path()), json_text(*ranking, "mode", path()) == "max",
                   json_text(*ranking, "by", path()) == "best"};
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
    JsonObject all = head();
    all.emplace_back(kRanking, ranking_json());
    replace_file(path(), json_line(all) + "\n");
    return;
  }
  const auto there = parse_json_object(before);
  require(there.has_value(), ExitCode::kBadData, path(), ": is damaged: it is no JSON object");
  require_same_sweep(*there);
  read_data(*there);
}

void SweepRecord::require_same_sweep(const JsonObject& there) const {
  const JsonObject mine = parse_json_object(json_line(head())).value();  // in the form of what was read
  const auto differs = [&](const std::string& key) {
    throw Error(ExitCode::kOutputLocked,
                str(dir_, " holds another sweep: its ",
                    key == "grid" || key == "points"
                        ? std::string("keys and values")
                        : str(key, key == "configuration" ? " (files or keys that shape results)" : ""),
                    " differ; repeat the command as it was, or choose another --dir"));
  };
  for (const auto& [key, value] : mine) {
    if (key == kData) continue;  // compared before each point
    const JsonValue* other = find_member(there, key);
    if (!other || *other != value) differs(key);
  }
  for (const char* key : {kSeed, kHalving})
    if (find_member(there, key) && !find_member(mine, key)) differs(key);
}

bool SweepRecord::is_there(const std::string& dir) { return !read_head(dir + "/sweep.json", 1).empty(); }

SweepRecord::SweepRecord(std::string dir) : dir_(std::move(dir)) {
  const std::string text = read_head(path(), kMostBytes);
  require(!text.empty(), ExitCode::kMissingInput, path(), ": there is no such file: ", dir_,
          " is not the directory of a sweep");
  const auto there = parse_json_object(text);
  require(there.has_value(), ExitCode::kBadData, path(), ": is damaged: it is no JSON object");
  const int64_t version = json_int(*there, "version", path());
  require(version == kSweepVersion, ExitCode::kBadData, path(), ": was written by another version of lockstep (format ",
          version, ", this one reads ", kSweepVersion, "); continue the sweep with that version");
  spec_.file = json_text(*there, "file", path());
  spec_.configuration = json_text(*there, "configuration", path());
  spec_.ranks = static_cast<int>(json_int(*there, "ranks", path()));
  read_data(*there);
  read_ranking(*there);
  if (find_member(*there, kSeed))
    spec_.draws = {json_int(*there, "points", path()), static_cast<uint64_t>(json_int(*there, kSeed, path()))};
  if (find_member(*there, kHalving)) {
    const auto h = parse_json_object(json_text(*there, kHalving, path()));
    require(h.has_value(), ExitCode::kBadData, path(), ": is damaged: its '", kHalving, "' is no object");
    spec_.halving = {json_int(*h, "eta", path()), json_int(*h, "first", path()), json_int(*h, "steps", path()),
                     json_text(*h, "by", path())};
  }
  spec_.grid.drawn = spec_.draws.has_value();
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
  PointEnd out{static_cast<int>(*code), finite_number(*object, "seconds").value_or(0)};
  if (find_member(*object, "rungs"))
    visit_json_list(json_text(*object, "rungs", point_dir(point)), [&](JsonObject&& rung) {
      out.rungs.push_back({integer_of(rung, "steps"), finite_number(rung, "value")});
    });
  return out;
}

void SweepRecord::write_end(int64_t point, const PointEnd& end) const {
  JsonObject object{{"exit_code", static_cast<int64_t>(end.code)}, {"seconds", std::round(end.seconds * 1000) / 1000}};
  std::vector<JsonObject> rungs;
  for (const RungEnd& r : end.rungs)
    rungs.push_back({{"steps", r.steps}, {"value", r.value ? JsonValue(*r.value) : JsonValue(nullptr)}});
  if (!rungs.empty()) object.emplace_back("rungs", json_array(rungs));
  replace_file(point_dir(point) + "/point.json", json_line(object) + "\n");
}

PointResult SweepRecord::result(int64_t point, int64_t until) const {
  PointResult out;
  out.point = point;
  out.end = end_of(point);
  const SweepRanking& by = spec_.ranking;
  const std::string metrics = RunPaths{point_dir(point)}.metrics(), metric = "val_" + by.metric;
  const auto take = [](const JsonObject& line, const std::string& key, bool highest, std::optional<double>& last,
                       std::optional<double>& best) {
    if (!find_member(line, key)) return;
    last = finite_number(line, key);
    if (is_better(last, best, highest)) best = last;
  };
  const auto read = [&](const std::string& text, const char* key) {
    const auto line = parse_json_object(text);
    if (!line) return;
    if (const auto step = finite_number(*line, "step")) out.steps = static_cast<int64_t>(*step);
    take(*line, key, by.metric == kLoss && by.highest, out.loss, out.best);
    if (by.metric != kLoss) take(*line, metric, by.highest, out.metric, out.best_metric);
  };
  const auto counts = [&](const std::string& line) { return until < 0 || json_integer(line, "step") <= until; };
  std::string last;
  each_line(metrics, [&](const std::string& line) {
    if (!counts(line)) return;
    if (line.find("\"val_loss\"") != line.npos) out.validation = true, read(line, "val_loss");
    last = line;
  });
  if (out.validation) {
    if (last.find("\"val_loss\"") == last.npos) read(last, "val_loss");  // for its step
    return out;
  }
  each_line(metrics, [&](const std::string& line) {
    if (counts(line)) read(line, kLoss);
  });
  return out;
}

std::optional<double> SweepRecord::value(const PointResult& r) const {
  const bool loss = spec_.ranking.metric == kLoss;
  return spec_.ranking.by_best ? (loss ? r.best : r.best_metric) : loss ? r.loss : r.metric;
}

std::vector<PointResult> SweepRecord::results() const {
  std::vector<PointResult> out;
  for (int64_t p = 0; p < spec_.grid.points(); ++p) out.push_back(result(p));
  const auto rung = [&](const PointResult& r) {
    return !spec_.halving || !r.end || r.end->rungs.empty() ? 0 : r.end->rungs.back().steps;
  };
  std::stable_sort(out.begin(), out.end(), [&](const PointResult& a, const PointResult& b) {
    if (rung(a) != rung(b)) return rung(a) > rung(b);
    return is_better(value(a), value(b), spec_.ranking.highest);
  });
  return out;
}

std::vector<std::string> SweepRecord::metrics() const {
  constexpr std::string_view kValidation = "val_";
  std::set<std::string> found;
  for (int64_t p = 0; p < spec_.grid.points(); ++p)
    each_line(RunPaths{point_dir(p)}.metrics(), [&](const std::string& text) {
      if (text.find("\"val_") == text.npos) return;
      const auto line = parse_json_object(text);
      if (!line) return;
      for (const auto& [key, _] : *line)
        if (key.starts_with(kValidation)) found.insert(key.substr(kValidation.size()));
    });
  return {found.begin(), found.end()};
}

JsonText values_json(const SweepGrid& grid, int64_t point) {
  JsonObject out;
  const std::vector<std::string> keys = grid.swept_keys(), values = grid.values(point);
  for (size_t i = 0; i < keys.size(); ++i) out.emplace_back(keys[i], values[i]);
  return {json_line(out)};
}

JsonObject SweepRecord::json(const PointResult& r) const {
  const auto known = [](const std::optional<double>& v) { return v ? JsonValue(*v) : JsonValue(nullptr); };
  const std::string& metric = spec_.ranking.metric;
  JsonObject out{{"point", r.point}, {"dir", point_dir(r.point)}, {"values", values_json(spec_.grid, r.point)}};
  if (metric != kLoss) {
    out.emplace_back(metric, known(r.metric));
    out.emplace_back("best_" + metric, known(r.best_metric));
  }
  out.emplace_back(kLoss, known(r.loss));
  out.emplace_back("best_loss", known(r.best));
  out.emplace_back("loss_of", std::string(r.validation ? "validation" : "training"));
  out.emplace_back("steps", r.steps);
  out.emplace_back("seconds", r.end ? JsonValue(r.end->seconds) : JsonValue(nullptr));
  out.emplace_back("exit_code", r.end ? JsonValue(static_cast<int64_t>(r.end->code)) : JsonValue(nullptr));
  return out;
}

std::vector<std::vector<std::string>> SweepRecord::cells(const std::vector<PointResult>& results, bool exact) const {
  std::vector<std::vector<std::string>> rows{{"point"}};
  for (const std::string& key : spec_.grid.swept_keys()) rows[0].push_back(key);
  const std::string& metric = spec_.ranking.metric;
  if (metric != kLoss) rows[0].insert(rows[0].end(), {metric, "best_" + metric});
  rows[0].insert(rows[0].end(), {"loss", "best_loss", "loss_of", "steps", "seconds", "exit_code"});
  const std::string none = exact ? "" : "-";
  const auto shown = [&](double v, int digits) { return exact ? str(v) : fixed(v, digits); };
  for (const PointResult& r : results) {
    rows.push_back({name(r.point)});
    for (const std::string& value : spec_.grid.values(r.point)) rows.back().push_back(value);
    if (metric != kLoss)
      for (const auto& v : {r.metric, r.best_metric}) rows.back().push_back(v ? shown(*v, 4) : none);
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
  all.emplace_back(kRanking, ranking_json());
  all.emplace_back("results", json_array(lines));
  replace_file(path(), json_line(all) + "\n");
}

}  // namespace lockstep
