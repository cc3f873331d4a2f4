// What the cells of a table say: a number, or that there is no value. Plain functions and values.
#pragma once

#include <array>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The number that a cell is, white space around it aside, infinity where 64 bits do not hold it; nothing where it is
// none. `comma`: where others have a point.
std::optional<double> number_in(std::string_view cell, bool comma);
// Whether there is a number, and it is finite in 32 bits.
bool is_float(const std::optional<double>& number);
// Whether it is also not negative, as the weight of a sample is; what is said of others.
bool is_weight(const std::optional<double>& number);
inline constexpr const char* kNoWeight = "which is no weight: a number of at least 0 that is finite in 32 bits";

// The texts of cells that stand for no value, white space around them aside: those that are named, or the ones of
// pandas' read_csv and "?"; and the numbers that these are.
class MissingTexts {
 public:
  MissingTexts(const std::vector<std::string>& named, bool comma);
  bool holds(std::string_view cell) const;

 private:
  bool comma_;
  std::set<std::string, std::less<>> texts_;
  std::set<double> numbers_;
  std::array<bool, 256> begins_{};  // whether one of the texts begins with this byte
};

}  // namespace lockstep
