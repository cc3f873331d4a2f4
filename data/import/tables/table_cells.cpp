#include "data/import/tables/table_cells.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "data/samples/label_index.h"

namespace lockstep {

namespace {

constexpr std::string_view kMinus = "\u2212";  // the sign of typography

std::optional<double> parsed(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || end != text.data() + text.size()) return std::nullopt;
  return error == std::errc() ? value : std::numeric_limits<double>::infinity();
}

// A number as programs write it.
std::optional<double> plain_number(std::string_view cell, bool comma) {
  std::string with_point;
  if (comma && cell.find_first_of(".,") != cell.npos) {
    if (cell.find('.') != cell.npos) return std::nullopt;
    with_point = cell;
    with_point[cell.find(',')] = '.';
    cell = with_point;
  }
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  if (!cell.starts_with(kMinus)) return parsed(cell);
  cell.remove_prefix(kMinus.size());
  if (cell.empty() || !(is_decimal_digit(cell[0]) || cell[0] == '.')) return std::nullopt;
  const std::optional<double> size = parsed(cell);
  return size ? std::optional(-*size) : std::nullopt;
}

// A number without sign, with signs between its thousands: three digits a group, or as in India two, but three in the
// last.
std::optional<double> grouped_number(std::string_view cell, const NumberForm& form) {
  std::string digits;
  std::vector<size_t> groups;
  for (size_t begin = 0;;) {
    size_t end = begin;
    while (end < cell.size() && is_decimal_digit(cell[end])) ++end;
    digits += cell.substr(begin, end - begin);
    groups.push_back(end - begin);
    const size_t sign = form.thousands == 0 ? 0 : thousands_at(cell.substr(end), form.thousands);
    begin = end + sign;
    if (sign > 0 && begin < cell.size() && is_decimal_digit(cell[begin])) continue;
    cell.remove_prefix(end);
    break;
  }
  if (groups.size() > 1) {
    const size_t of = groups.size() > 2 ? groups[1] : 3;
    bool good = (of == 2 || of == 3) && groups.front() >= 1 && groups.front() <= of && groups.back() == 3;
    for (size_t i = 1; i + 1 < groups.size(); ++i) good &= groups[i] == of;
    if (!good) return std::nullopt;
  }
  const char point = form.decimal_comma ? ',' : '.';
  if (digits.empty() && !(cell.size() > 1 && cell[0] == point && is_decimal_digit(cell[1]))) return std::nullopt;
  if (!cell.empty() && cell[0] == point) digits += '.', cell.remove_prefix(1);
  if (cell.find_first_of(".,") != cell.npos) return std::nullopt;
  return parsed(digits + std::string(cell));
}

// Takes the longest of the texts off one end; false: it has none there.
bool take_text(std::string_view& cell, const NumberForm& form, bool front, uint64_t& stripped) {
  size_t taken = 0, which = 0;
  for (size_t i = 0; i < form.strip.size(); ++i) {
    const std::string& text = form.strip[i];
    if (text == "()" || text.size() <= taken || is_decimal_digit(front ? text.back() : text.front())) continue;
    if (front ? cell.starts_with(text) : cell.ends_with(text)) taken = text.size(), which = i;
  }
  if (taken == 0) return false;
  stripped |= uint64_t{1} << which;
  front ? cell.remove_prefix(taken) : cell.remove_suffix(taken);
  cell = without_white_space(cell);
  return true;
}

std::optional<double> written_number(std::string_view cell, const NumberForm& form, uint64_t& stripped) {
  const bool accounting = std::find(form.strip.begin(), form.strip.end(), "()") != form.strip.end();
  bool negative = accounting && cell.size() > 2 && cell.front() == '(' && cell.back() == ')';
  if (negative) cell = without_white_space(cell.substr(1, cell.size() - 2));
  else if (accounting && cell.size() > 1 && cell.ends_with('-') && is_decimal_digit(cell[cell.size() - 2]))
    negative = true, cell.remove_suffix(1);
  bool has_sign = negative;
  for (bool more = true; more;) {
    more = take_text(cell, form, true, stripped);
    more |= take_text(cell, form, false, stripped);
    const size_t sign = cell.starts_with(kMinus) ? kMinus.size() : cell.starts_with('-') || cell.starts_with('+');
    if (sign == 0) continue;
    if (has_sign) return std::nullopt;
    has_sign = more = true;
    negative = cell[0] != '+';
    cell = without_white_space(cell.substr(sign));
  }
  const std::optional<double> size = grouped_number(cell, form);
  return size && negative ? std::optional(-*size) : size;
}

}  // namespace

size_t thousands_at(std::string_view text, char thousands) {
  if (text.starts_with(thousands)) return 1;
  constexpr std::string_view kSpaces[] = {"\u00a0", "\u202f", "\u2009", "\u2007"};
  if (thousands == ' ')
    for (std::string_view space : kSpaces)
      if (text.starts_with(space)) return space.size();
  constexpr std::string_view kApostrophe = "\u2019";
  return thousands == '\'' && text.starts_with(kApostrophe) ? kApostrophe.size() : 0;
}

std::optional<double> number_in(std::string_view cell, const NumberForm& form, uint64_t* stripped) {
  cell = without_white_space(cell);
  const std::optional<double> plain = plain_number(cell, form.decimal_comma);
  if (plain || (form.thousands == 0 && form.strip.empty())) return plain;
  uint64_t those = 0;
  const std::optional<double> out = written_number(cell, form, those);
  if (out && stripped) *stripped = those;
  return out;
}

void require_readable(const NumberForm& form) {
  require(form.thousands != (form.decimal_comma ? ',' : '.'), ExitCode::kUsage, "--thousands ",
          std::string(1, form.thousands), ": is the sign before the decimals; ",
          form.decimal_comma ? "leave out --decimal-comma" : "add --decimal-comma",
          " where it stands between thousands");
  require(form.strip.size() <= kMostStripped, ExitCode::kUsage, "--strip: names ", form.strip.size(),
          " texts; at most ", kMostStripped, " are possible");
  for (const std::string& text : form.strip) {
    const bool is_sign = text == "-" || text == "+" || text == kMinus || text == "(" || text == ")" || text == "." ||
                         text == "," || (form.thousands != 0 && thousands_at(text, form.thousands) == text.size());
    require(!text.empty() && !is_sign && !std::all_of(text.begin(), text.end(), is_decimal_digit), ExitCode::kUsage,
            "--strip: '", text, "' may be a part of a number: signs, digits and what stands between these are read; ",
            "() stands for parentheses around a negative number, and --thousands names the sign between thousands");
  }
}

bool is_float(const std::optional<double>& number) {
  return number && std::abs(*number) <= std::numeric_limits<float>::max();
}

bool is_weight(const std::optional<double>& number) { return is_float(number) && *number >= 0; }

MissingTexts::MissingTexts(const std::vector<std::string>& named, const NumberForm& form) : form_(form) {
  constexpr const char* kUsual[] = {"#N/A",   "#N/A N/A", "#NA",  "-1.#IND", "-1.#QNAN", "-NaN", "-nan",
                                    "1.#IND", "1.#QNAN",  "<NA>", "N/A",     "NA",       "NULL", "NaN",
                                    "None",   "n/a",      "nan",  "null",    "?"};
  if (named.empty()) texts_.insert(std::begin(kUsual), std::end(kUsual));
  for (const std::string& text : named) {
    texts_.emplace(without_white_space(text));
    const std::optional<double> number = number_in(text, form);
    if (number && std::abs(*number) < 0x1p53) numbers_.insert(*number);
  }
  for (const std::string& text : texts_)
    if (!text.empty()) begins_[static_cast<uint8_t>(text[0])] = true;
}

bool MissingTexts::holds(std::string_view cell) const {
  cell = without_white_space(cell);
  if (cell.empty()) return true;
  if (begins_[static_cast<uint8_t>(cell[0])] && texts_.contains(cell)) return true;
  const std::optional<double> number = numbers_.empty() ? std::nullopt : number_in(cell, form_);
  return number && numbers_.contains(*number);
}

}  // namespace lockstep
