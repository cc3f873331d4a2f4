#include "launch/sweep/points.h"

#include <algorithm>
#include <functional>

#include "comm/plan/plan_comm.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/device/allocator.h"
#include "launch/config/run_length.h"
#include "launch/training/loop/step_plan.h"

namespace lockstep {
namespace {

constexpr size_t kMostOpened = 64;  // data at a time

// The lines of a configuration's text whose keys `wanted` takes.
std::string lines_with(const std::string& text, const std::function<bool(std::string_view)>& wanted) {
  std::string out;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    const std::string_view line = std::string_view(text).substr(at, end - at);
    if (wanted(line)) out += str(line, "\n");
  }
  return out;
}

bool names_data(std::string_view line) { return line.starts_with("data.") || line.starts_with("init."); }

// How long a point trains, as it is given: its data may not be there yet.
std::string length_lines(const Settings& s) {
  std::string out = str("train.steps: ", s.train.steps, "\n");
  if (needs_data_for_steps(s)) out += str("train.epochs: ", s.train.epochs, "\ntrain.tokens: ", s.train.tokens, "\n");
  return out;
}

bool shapes_a_model(std::string_view line) {
  for (const char* key : {"seed:", "run.", "schedule.", "optim.lr:"})
    if (line.starts_with(key)) return false;
  return true;
}

std::string point_text(const SweepSpec& spec, int64_t p) {
  return str("point ", SweepRecord::name(p), " (", spec.grid.text(p), ")");
}

}  // namespace

const Datasets* ModelTrials::open(const std::shared_ptr<Settings>& settings, const std::string& what) {
  if (opened_.size() >= kMostOpened) opened_.clear();
  const auto [found, is_new] = opened_.try_emplace(lines_with(settings->config.text(), names_data));
  Opened& o = found->second;
  if (!is_new) return o.sets;
  o.settings = settings;
  o.data = std::make_unique<SharedData>(*settings);
  try {
    Stream stream(new_meta_device(), Stream::Mode::kInline);
    const WithStream with(stream);
    o.sets = &o.data->open(*make_plan_communicator(0, 1));
  } catch (const Error& e) {
    log_warning(str("the data of ", what, " cannot be opened: ", e.what(), "; its model is not checked"));
  }
  return o.sets;
}

void ModelTrials::add(std::shared_ptr<Settings> settings, int ranks, const std::string& what) {
  const bool is_new = done_.insert(lines_with(settings->config.text(), shapes_a_model)).second;
  if (!is_new && !needs_data_for_steps(*settings)) return;
  make_plannable(*settings);
  const Datasets* data = open(settings, what);
  if (!data) return;
  if (!data->validation && unvalidated_.empty()) unvalidated_ = what;
  resolve_steps(*settings, *data->train);
  if (!is_new) return;
  const std::vector<Metric> metrics = try_build(*settings, *data, ranks);
  if (metrics_.empty()) metrics_ = metrics;
}

namespace {

void leave_out_keys(const App& app, SweepSpec& spec) {
  spec.without.clear();
  const std::vector<std::string> swept = spec.grid.swept_keys();
  const bool chooses = std::any_of(swept.begin(), swept.end(), [](auto& key) { return key.ends_with(".name"); });
  if (!chooses) return;
  struct Found {
    std::string text;
    std::vector<int64_t> points;
  };
  std::map<std::string, Found> found;  // by key
  for (int64_t p = 0; p < spec.grid.points(); ++p) try {
      for (auto& k : keys_without_effect(app, ConfigTree::load(spec.file, spec.overrides(p)))) {
        Found& f = found[k.key];
        if (f.points.empty()) f.text = str(k.place, ": ", k.key, ": it ", k.why);
        f.points.push_back(p);
      }
    } catch (const Error& e) {
      throw Error(e.code(), str(point_text(spec, p), ": ", e.what()));
    }
  spec.without.resize(static_cast<size_t>(spec.grid.points()));
  for (const auto& [key, f] : found) {
    if (static_cast<int64_t>(f.points.size()) == spec.grid.points()) continue;  // a mistake, which loading names
    constexpr size_t kNamed = 5;
    std::string points;
    for (size_t i = 0; i < f.points.size(); ++i) {
      spec.without[static_cast<size_t>(f.points[i])].push_back(key);
      if (i < kNamed) points += str(i ? ", " : "", point_text(spec, f.points[i]));
    }
    if (f.points.size() > kNamed) points += str(" and ", f.points.size() - kNamed, " more");
    log_warning(str(f.text, "; it is left out at ", points));
  }
}

}  // namespace

SweepPoints check_points(const App& app, SweepSpec& spec) {
  for (const SweepKey& k : spec.grid.keys)
    require(!k.swept || k.key != "run.dir", ExitCode::kUsage, "sweep: run.dir cannot be swept: each point has its own ",
            "directory below --dir");
  leave_out_keys(app, spec);
  SweepPoints out;
  Hasher128 all;
  ModelTrials trials;
  for (int64_t p = 0; p < spec.grid.points(); ++p) {
    const std::string what = point_text(spec, p);
    try {
      std::shared_ptr<Settings> s = load_settings(app, ConfigTree::load(spec.file, spec.overrides(p)), spec.ranks);
      const std::string text = str(s->config.math_text(), length_lines(*s));
      all.update(text.data(), text.size());
      out.data.push_back(s->data);
      trials.add(s, spec.ranks, what);
      out.steps.push_back(s->train.steps);
    } catch (const Error& e) {
      throw Error(e.code(), str(what, ": ", e.what()));
    }
  }
  out.configuration = to_hex(all.digest());
  out.metrics = trials.metrics();
  out.unvalidated = trials.unvalidated();
  return out;
}

}  // namespace lockstep
