// What the cells of a table say: a number, or that there is no value.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "data/samples/cell_form.h"

namespace lockstep {

constexpr bool is_decimal_digit(char c) { return c >= '0' && c <= '9'; }
// The number that a cell is, white space around it aside, infinity where 64 bits do not hold it; nothing where it is
// none. `stripped`: gets a bit for each of form.strip that was taken off.
std::optional<double> number_in(std::string_view cell, const NumberForm& form = {}, uint64_t* stripped = nullptr);
// The bytes of the sign between thousands with which the text begins; 0: it does not.
size_t thousands_at(std::string_view text, char thousands);
constexpr size_t kMostStripped = 64;  // texts of NumberForm::strip
// Throws ExitCode::kUsage for a form by which no number could be read, or one for another.
void require_readable(const NumberForm& form);

// Whether there is a number, and it is finite in 32 bits.
bool is_float(const std::optional<double>& number);
// Whether it is also not negative, as the weight of a sample is; what is said of others.
bool is_weight(const std::optional<double>& number);
inline constexpr const char* kNoWeight = "which is no weight: a number of at least 0 that is finite in 32 bits";

// The texts of cells that stand for no value, white space around them aside: those that are named, or the ones of
// pandas' read_csv and "?"; and the numbers that these are.
class MissingTexts {
 public:
  MissingTexts(const std::vector<std::string>& named, const NumberForm& form);
  bool holds(std::string_view cell) const;

 private:
  NumberForm form_;
  std::set<std::string, std::less<>> texts_;
  std::set<double> numbers_;
  std::array<bool, 256> begins_{};  // whether one of the texts begins with this byte
};

}  // namespace lockstep
