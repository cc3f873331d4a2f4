// SweepRecord: the directory of a sweep. sweep.json says what is swept and, at the end, what came out; each point has a
// run directory 000, 001, ... in which point.json says how it ended. Owned by the command.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/base/plain_file.h"
#include "core/io/json.h"
#include "launch/config/sweep_grammar.h"
#include "launch/records/run_dir.h"
#include "launch/sweep/halving.h"

namespace lockstep {

// By what the points are ranked: a measure of the validation, or the training loss where there is none.
struct SweepRanking {
  std::string metric = "loss";
  bool highest = false;  // whether higher is better
  bool by_best = false;  // by the best value of a run; otherwise by the last one
};

// What must be the same for a sweep to go on, but for the ranking without halving.
struct SweepSpec {
  std::string file;
  int ranks = 1;
  SweepGrid grid;
  std::string configuration;  // hash of what shapes the results of all points
  // The dataset files and their identities (data/streams/data_identity.h), as they were when the sweep began.
  std::map<std::string, std::string> data = {};
  std::optional<SweepDraws> draws = {};  // of a random search
  std::optional<Halving> halving = {};
  SweepRanking ranking = {};
  std::vector<std::string> for_ranking = {};           // overrides with which every point measures the metric
  std::vector<std::vector<std::string>> without = {};  // keys that are left out at each point; empty: none

  std::vector<std::string> overrides(int64_t point) const;
};

struct RungEnd {
  int64_t steps = 0;
  std::optional<double> value;  // by which the points are ranked
};

struct PointEnd {
  int code = 0;                     // exit code; 0 also where a rung ended as planned
  double seconds = 0;               // of all its starts
  std::vector<RungEnd> rungs = {};  // that it has trained to

  bool reached(int64_t steps) const;  // a rung of so many
};

struct PointResult {
  int64_t point = 0;
  std::optional<PointEnd> end;       // absent: never ended by itself
  std::optional<double> loss, best;  // of the last measurement, the lowest (or highest, by the ranking); finite ones
  std::optional<double> metric, best_metric;  // the same of the ranking's metric, where that is not the loss
  bool validation = false;                    // losses of the validation part; otherwise of training steps
  int64_t steps = 0;
};

class SweepRecord {
 public:
  // Creates the directory and sweep.json, or compares them: throws ExitCode::kOutputLocked if it holds another sweep or
  // other runs, or is in use. `together`: other processes may work on points of the same sweep at the same time.
  SweepRecord(std::string dir, SweepSpec spec, bool together);
  // What a directory holds. Throws ExitCode::kMissingInput if there is no sweep, kBadData if sweep.json is damaged.
  explicit SweepRecord(std::string dir);

  static bool is_there(const std::string& dir);  // whether it is a sweep's directory

  const SweepSpec& spec() const { return spec_; }
  // `now`: files of a point that is to start. Throws ExitCode::kBadData naming the first one that is not what it was
  // when the sweep began; those of which nothing was known are remembered.
  void require_same_data(const std::map<std::string, std::string>& now);
  const std::string& dir() const { return dir_; }
  static std::string name(int64_t point);  // "007"
  std::string point_dir(int64_t point) const { return dir_ + "/" + name(point); }
  std::string log(int64_t point) const { return point_dir(point) + "/sweep.log"; }

  std::optional<PointEnd> end_of(int64_t point) const;
  void write_end(int64_t point, const PointEnd& end) const;

  // `until`: of the steps up to this one; negative: of all.
  PointResult result(int64_t point, int64_t until = -1) const;
  std::optional<double> value(const PointResult& result) const;  // by which it is ranked
  // The best first, with halving those of a later rung before those of an earlier one; points without a value last.
  std::vector<PointResult> results() const;
  std::vector<std::string> metrics() const;  // that validations of the points have measured, sorted
  void set_ranking(const SweepRanking& ranking) { spec_.ranking = ranking; }
  // Writes the results to sweep.json and sweep.csv.
  void write(const std::vector<PointResult>& results) const;
  std::string table(const std::vector<PointResult>& results) const;
  JsonObject json(const PointResult& result) const;

 private:
  std::string path() const { return dir_ + "/sweep.json"; }
  JsonObject head() const;
  JsonText ranking_json() const;
  void read_ranking(const JsonObject& there);
  void require_same_sweep(const JsonObject& there) const;
  void read_data(const JsonObject& there);
  std::vector<std::vector<std::string>> cells(const std::vector<PointResult>& results, bool exact) const;
  void lock(bool together);

  const std::string dir_;
  SweepSpec spec_;
  Descriptor lock_;
};

// The swept keys of a point as an object: {"optim.lr":"0.1"}.
JsonText values_json(const SweepGrid& grid, int64_t point);

// A line of a CSV file as RFC 4180 has it, with its end.
std::string csv_line(const std::vector<std::string>& cells);

}  // namespace lockstep
