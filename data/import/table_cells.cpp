#include "data/import/table_cells.h"

#include <charconv>
#include <cmath>
#include <limits>

#include "data/samples/label_index.h"

namespace lockstep {

std::optional<double> number_in(std::string_view cell, bool comma) {
  cell = without_white_space(cell);
  std::string with_point;
  if (comma && cell.find_first_of(".,") != cell.npos) {
    if (cell.find('.') != cell.npos) return std::nullopt;
    with_point = cell;
    with_point[cell.find(',')] = '.';
    cell = with_point;
  }
  if (cell.empty()) return std::nullopt;
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (end != cell.data() + cell.size()) return std::nullopt;
  return error == std::errc() ? value : std::numeric_limits<double>::infinity();
}

bool is_float(const std::optional<double>& number) {
  return number && std::abs(*number) <= std::numeric_limits<float>::max();
}

bool is_weight(const std::optional<double>& number) { return is_float(number) && *number >= 0; }

MissingTexts::MissingTexts(const std::vector<std::string>& named, bool comma) : comma_(comma) {
  constexpr const char* kUsual[] = {"#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN", "-nan",
                                    "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL", "NaN",
                                    "None",   "n/a",      "nan",  "null",    "?"};
  if (named.empty()) texts_.insert(std::begin(kUsual), std::end(kUsual));
  for (const std::string& text : named) {
    texts_.emplace(without_white_space(text));
    const std::optional<double> number = number_in(text, comma);
    if (number && std::isfinite(*number)) numbers_.insert(*number);
  }
  for (const std::string& text : texts_)
    if (!text.empty()) begins_[static_cast<uint8_t>(text[0])] = true;
}

bool MissingTexts::holds(std::string_view cell) const {
  cell = without_white_space(cell);
  if (cell.empty()) return true;
  if (begins_[static_cast<uint8_t>(cell[0])] && texts_.contains(cell)) return true;
  const std::optional<double> number = numbers_.empty() ? std::nullopt : number_in(cell, comma_);
  return number && numbers_.contains(*number);
}

}  // namespace lockstep
