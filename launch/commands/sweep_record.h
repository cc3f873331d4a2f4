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
#include "launch/artifacts/run_dir.h"
#include "launch/config/sweep_grammar.h"

namespace lockstep {

// What must be the same for a sweep to go on.
struct SweepSpec {
  std::string file;
  int ranks = 1;
  SweepGrid grid;
  std::string configuration;  // hash of what shapes the results of all points
  // The dataset files and their identities (data/streams/data_identity.h), as they were when the sweep began.
  std::map<std::string, std::string> data = {};
};

struct PointEnd {
  int code = 0;        // exit code
  double seconds = 0;  // of all its starts
};

struct PointResult {
  int64_t point = 0;
  std::optional<PointEnd> end;       // absent: never ended by itself
  std::optional<double> loss, best;  // of the last measurement, the lowest; of finite values
  bool validation = false;           // losses of the validation part; otherwise of training steps
  int64_t steps = 0;
};

class SweepRecord {
 public:
  // Creates the directory and sweep.json, or compares them: throws ExitCode::kOutputLocked if it holds another sweep or
  // other runs, or is in use. `together`: other processes may work on points of the same sweep at the same time.
  SweepRecord(std::string dir, SweepSpec spec, bool together);
  // What a directory holds. Throws ExitCode::kMissingInput if there is no sweep, kBadData if sweep.json is damaged.
  explicit SweepRecord(std::string dir);

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

  PointResult result(int64_t point) const;
  std::vector<PointResult> results() const;  // the lowest loss first; points without one last
  // Writes the results to sweep.json and sweep.csv.
  void write(const std::vector<PointResult>& results) const;
  std::string table(const std::vector<PointResult>& results) const;
  JsonObject json(const PointResult& result) const;

 private:
  std::string path() const { return dir_ + "/sweep.json"; }
  JsonObject head() const;
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
