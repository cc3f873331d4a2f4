#include "launch/records/prometheus.h"

#include <array>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "core/base/error.h"

namespace lockstep {
namespace {

std::string number_text(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  std::array<char, 32> text;
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

// The format wants the lines of one name together, and none of them twice: of keys that become one, the first counts.
class Gauges {
 public:
  void add(const std::string& name, const char* help, const std::string& labels, double value) {
    if (!known_.insert(name + labels).second) return;
    std::string& lines = all_[name];
    if (lines.empty()) lines = str("# HELP ", name, " ", help, "\n# TYPE ", name, " gauge\n");
    lines += str(name, labels, " ", number_text(value), "\n");
  }
  std::string text() const {
    std::string out;
    for (const auto& [_, lines] : all_) out += lines;
    return out;
  }

 private:
  std::map<std::string, std::string> all_;  // by name
  std::set<std::string> known_;
};

std::string escaped_label(const std::string& value) {
  std::string out;
  for (const char c : value)
    if (c == '\n') out += "\\n";
    else if (c == '\\' || c == '"') out += std::string("\\") + c;
    else out += c;
  return out;
}

struct Named {
  std::string name;
  double scale = 1;        // to the unit that the name says
  std::string label = {};  // what follows a '/' of the key: "wait_ms/BUCKET"
};

// Prometheus's names have base units: seconds, bytes.
Named named(const std::string& key) {
  const size_t slash = key.find('/');
  Named out;
  if (slash != key.npos) out.label = key.substr(slash + 1);
  std::string base = key.substr(0, slash);
  const auto ends = [&](std::string_view with, const char* unit, double scale) {
    if (!base.ends_with(with)) return false;
    base = base.substr(0, base.size() - with.size()) + unit;
    out.scale = scale;
    return true;
  };
  (void)(ends("_per_s", "_per_second", 1) || ends("_ms", "_seconds", 1e-3) || ends("_s", "_seconds", 1) ||
         ends("_mb", "_bytes", 1e6));
  out.name = "lockstep_";
  for (const char c : base) {
    const bool kept = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    out.name += kept ? c : '_';
  }
  return out;
}

}  // namespace

std::string prometheus_text(const std::vector<std::pair<std::string, RunStatus>>& runs) {
  Gauges all;
  for (const auto& [dir, s] : runs) {
    const std::string run = "{run=\"" + escaped_label(dir) + "\"}";
    all.add("lockstep_up", "1 while the run goes on.", run, s.state == "running" ? 1 : 0);
    all.add("lockstep_failed", "1 where the run has failed.", run, s.state == "failed" ? 1 : 0);
    all.add("lockstep_exit_code", "Exit code of the last failure; 0: none.", run, static_cast<double>(s.failure_code));
    all.add("lockstep_steps_planned", "Steps that the run is to do.", run, static_cast<double>(s.total));
    if (s.metrics_age_s >= 0 && !s.losses.empty())
      all.add("lockstep_metrics_age_seconds", "Since the last step was recorded.", run, s.metrics_age_s);
    if (!s.checkpoint.empty())
      all.add("lockstep_checkpoint_age_seconds", "Since the newest checkpoint was saved.", run, s.checkpoint_age_s);
    if (s.validation_loss >= 0) {
      all.add("lockstep_validation_loss", "The last one.", run, s.validation_loss);
      all.add("lockstep_validation_step", "After which it was measured.", run, static_cast<double>(s.validation_step));
    }
    for (const auto& [key, value] : s.last_line)
      if (const auto v = as_number(value)) {
        const Named n = named(key);
        const std::string labels =
            n.label.empty() ? run : run.substr(0, run.size() - 1) + ",name=\"" + escaped_label(n.label) + "\"}";
        all.add(n.name, "Of the last step recorded in metrics.jsonl.", labels, n.scale * *v);
      }
    if (const int64_t attempt = integer_of(s.launcher, "attempt"); attempt > 0)
      all.add("lockstep_attempt", "Starts of the job by its launcher.", run, static_cast<double>(attempt));
    for (const JsonObject& rank : s.ranks) {
      const std::string labels = "{run=\"" + escaped_label(dir) + "\",rank=\"" +
                                 std::to_string(integer_of(rank, "rank")) + "\",host=\"" +
                                 escaped_label(text_of(rank, "host")) + "\"}";
      for (const auto& [key, value] : rank)
        if (const auto v = as_number(value); v && key != "rank") {
          const Named n = named("rank_" + key);
          all.add(n.name, "Of a rank, as its launcher saw it last.", labels, n.scale * *v);
        }
    }
  }
  return all.text();
}

}  // namespace lockstep
