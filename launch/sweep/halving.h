// Successive halving: which points of a sweep go on, and how far. Plain values and functions.
// Source: Jamieson and Talwalkar, "Non-stochastic best arm identification and hyperparameter optimization", 2016.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace lockstep {

struct Halving {
  int64_t eta = 3;    // one of so many points goes on
  int64_t first = 1;  // steps of the first rung
  int64_t steps = 1;  // of a whole run
  std::string by;     // in words, what the points are ranked by
};

// Whether `a` is better than `b`; no value is worse than any.
bool is_better(const std::optional<double>& a, const std::optional<double>& b, bool highest);

struct Rung {
  int64_t steps = 0;   // to which its points train
  int64_t points = 0;  // how many train there
  friend bool operator==(const Rung&, const Rung&) = default;
};

// From first on, each rung has eta times the steps of the one before and a part in eta of its points, rounded down;
// the last one has all steps. Where one point is left, its rung is the last.
std::vector<Rung> rungs_of(const Halving& halving, int64_t points);

// The steps that the rungs train in all; a point goes on where it stopped.
int64_t steps_of_rungs(const std::vector<Rung>& rungs);

// The `count` best of points with their values, in the order of their numbers; points without a value come last, and
// of equal ones the one with the smaller number comes first.
std::vector<int64_t> best_points(std::vector<std::pair<int64_t, std::optional<double>>> points, int64_t count,
                                 bool highest);

}  // namespace lockstep
