// The points of a sweep, before the first of them starts: the configuration of each is loaded and its model built.
// Plain functions.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "launch/config/settings.h"
#include "launch/sweep/record.h"
#include "launch/training/step/shared_data.h"

namespace lockstep {

// Builds models on a device without bytes, for data that is opened once for all configurations that name the same.
class ModelTrials {
 public:
  // Throws what a run of `ranks` ranks would where model, data and options do not fit together. Data that cannot be
  // opened is warned of, beginning with `what`: it may be there when the run begins.
  void add(std::shared_ptr<Settings> settings, int ranks, const std::string& what);
  const std::vector<Metric>& metrics() const { return metrics_; }  // that the first model is measured by
  const std::string& unvalidated() const { return unvalidated_; }  // `what` of the first without a validation part

 private:
  struct Opened {
    std::shared_ptr<Settings> settings;  // SharedData borrows them
    std::unique_ptr<SharedData> data;
    const Datasets* sets = nullptr;  // null: they cannot be opened
  };
  const Datasets* open(const std::shared_ptr<Settings>& settings, const std::string& what);

  std::map<std::string, Opened> opened_;  // by what names the data
  std::set<std::string> done_;            // what shapes the models
  std::vector<Metric> metrics_;
  std::string unvalidated_;
};

struct SweepPoints {
  std::string configuration;      // hash of what shapes the results of all points, and of how far they train
  std::vector<DataOptions> data;  // of each point
  std::vector<int64_t> steps;     // of each point; 0: only its data tells, which cannot be opened
  std::vector<Metric> metrics;    // that the first point whose model was built measures; empty: none was
  std::string unvalidated;        // the first point whose data has no validation part; empty: there is none
};

// Notes in spec.without the keys that have no effect at some of the points but have one at others, as those of an
// optimizer where optim.name is swept, and warns of them. Throws ExitCode::kUsage where run.dir is swept, and what a
// point's configuration or model throws, naming the point.
SweepPoints check_points(const App& app, SweepSpec& spec);

}  // namespace lockstep
