// Curve, RankTimes: what a report shows of any number of steps, in a bounded number of points. Values are added in the
// order of the steps; once the bound is reached, neighbouring ones are merged. Plain values.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

// One metric over the steps. A group of merged values keeps the least and the greatest of them, each with its own step,
// so that a spike of one step among a million stays visible.
class Curve {
 public:
  // `most`: groups, at least 2; a group gives at most three points.
  explicit Curve(size_t most) : most_(most) {}
  // Steps do not decrease. A value that is not finite is a point, too.
  void add(int64_t step, double value);
  // In JSON: {"n":values taken,"m":their median,"s":[steps, each but the first by its distance to the one
  // before],"v":[values, null where not finite, with five significant digits]}.
  std::string json() const;
  int64_t count() const { return count_; }
  double median() const;  // of all finite values that were taken, to half a percent; NaN of none

  struct Point {
    int64_t step = 0;
    double value = 0;  // NaN: one that was not finite
  };
  std::vector<Point> points() const;  // as json() has them

 private:
  struct Group {
    Point least, greatest;
    int64_t nonfinite = -1;  // a step whose value was not finite
    bool has_values = false;
    void take(const Point& point);
    void take(const Group& next);
  };
  void halve();

  size_t most_;
  int64_t width_ = 1;     // values of a full group
  int64_t in_group_ = 0;  // values of the last one
  int64_t count_ = 0;
  std::map<int, int64_t> sizes_;  // how many values of each size, by sign and logarithm
  Point last_;
  std::vector<Group> groups_;
};

// The time that each rank computed in each step, in milliseconds, as means over neighbouring steps: a column each.
class RankTimes {
 public:
  explicit RankTimes(size_t most_columns) : most_(most_columns) {}
  void add(int64_t step, const std::vector<double>& ms);  // by rank; another number of ranks begins a column
  // {"s":[first step of each column],"mean":[[ms by rank] of each column]}
  std::string json() const;
  struct Straggler {
    int rank = 0;
    double times = 1;  // its time by that of the median rank
  };
  // The rank that took a tenth longer than the median rank (of two ranks: than the other) over all steps, and in
  // columns of at least half of them; nothing if there is none.
  std::optional<Straggler> straggler() const;
  bool empty() const { return columns_.empty(); }

 private:
  struct Column {
    int64_t step = 0, steps = 0;
    std::vector<double> sum;
  };
  void halve();

  size_t most_;
  int64_t width_ = 1;
  std::vector<Column> columns_;
};

// A number with five significant digits, as JSON: null where it is not finite.
std::string short_json_number(double value);

}  // namespace lockstep
