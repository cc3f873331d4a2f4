// The arguments of `lockstep sweep`: overrides that give a key one value or several, in Hydra's grammar, and the grid
// of runs that they span. Plain values and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/app.h"

namespace lockstep {

// interval(low,high): numbers from low to below high, drawn uniformly or, with `log`, uniformly in their logarithms.
struct SweepInterval {
  double low = 0, high = 0;
  bool log = false;
  friend bool operator==(const SweepInterval&, const SweepInterval&) = default;
};

// A key and the values that it takes in turn, each as the text of an override ("0.1", "[1, 2]", "'a,b'").
struct SweepKey {
  std::string key;
  std::vector<std::string> values;
  bool swept = true;                           // false: a plain override, with one value
  std::optional<SweepInterval> interval = {};  // in place of values: they are drawn
  friend bool operator==(const SweepKey&, const SweepKey&) = default;
};

// The choices of a key, such as those of optim.name; empty if the key has none.
using ChoicesOf = std::function<std::vector<std::string>(const std::string& key)>;
ChoicesOf choices_of_keys(const App& app);  // as `lockstep config keys` shows them

// Reads "key=VALUE", where VALUE is one of
//   a,b,[1,2]            a list: each part is a value; commas within brackets and quotes do not separate
//   choice(a,b)          the same
//   range(1,4)           from the first number to below the second, by a third one that may follow (default 1)
//   range(4)             from 0
//   glob(adam*)          the choices of the key that match the pattern, in their order
//   interval(0.1,0.5)    numbers to draw, uniformly; tag(log, interval(1e-4,1e-1)): with uniform logarithms
// and everything else is one value. "~key", which takes a key back, is a plain override. Throws ExitCode::kUsage naming
// the argument and what is wrong with it.
SweepKey parse_sweep_argument(std::string_view argument, const ChoicesOf& choices);

// How many points of a random search there are, and what they are drawn by.
struct SweepDraws {
  int64_t points = 0;
  uint64_t seed = 0;
};

// The product of all values, in the order of the arguments: the first key changes slowest. Or points that were drawn.
struct SweepGrid {
  static constexpr int64_t kMaxPoints = 10'000;

  std::vector<SweepKey> keys;  // including plain overrides
  bool drawn = false;          // each swept key has a value for each point, instead of all of them with all

  // With `draws`, each point has of each swept key a value drawn from the list or the interval; the points differ where
  // the values make so many different ones. Throws
  // ExitCode::kUsage where an argument is malformed, a swept key is given twice, there are more than kMaxPoints points,
  // an interval is given without `draws`, or there is nothing to draw.
  static SweepGrid parse(const std::vector<std::string>& arguments, const ChoicesOf& choices,
                         const std::optional<SweepDraws>& draws = {});

  int64_t points() const;  // none of the keys has an interval
  std::vector<std::string> swept_keys() const;
  std::vector<std::string> values(int64_t point) const;     // of swept_keys()
  std::vector<std::string> overrides(int64_t point) const;  // of all keys: "key=value"
  std::string text(int64_t point) const;                    // "optim.lr=0.1 seed=2": the swept keys

 private:
  void draw(const SweepDraws& draws);
};

}  // namespace lockstep
