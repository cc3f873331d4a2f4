// The arguments of `lockstep sweep`: overrides that give a key one value or several, in Hydra's grammar, and the grid
// of runs that they span. Plain values and functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/app.h"

namespace lockstep {

// A key and the values that it takes in turn, each as the text of an override ("0.1", "[1, 2]", "'a,b'").
struct SweepKey {
  std::string key;
  std::vector<std::string> values;
  bool swept = true;  // false: a plain override, with one value
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
// and everything else is one value. "~key", which takes a key back, is a plain override. Throws ExitCode::kUsage naming
// the argument and what is wrong with it.
SweepKey parse_sweep_argument(std::string_view argument, const ChoicesOf& choices);

// The product of all values, in the order of the arguments: the first key changes slowest.
struct SweepGrid {
  static constexpr int64_t kMaxPoints = 10'000;

  std::vector<SweepKey> keys;  // including plain overrides

  // Throws ExitCode::kUsage where an argument is malformed, a swept key is given twice, or there are more than
  // kMaxPoints points.
  static SweepGrid parse(const std::vector<std::string>& arguments, const ChoicesOf& choices);

  int64_t points() const;
  std::vector<std::string> swept_keys() const;
  std::vector<std::string> values(int64_t point) const;     // of swept_keys()
  std::vector<std::string> overrides(int64_t point) const;  // of all keys: "key=value"
  std::string text(int64_t point) const;                    // "optim.lr=0.1 seed=2": the swept keys
};

}  // namespace lockstep
