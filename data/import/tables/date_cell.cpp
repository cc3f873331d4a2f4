#include "data/import/tables/date_cell.h"

#include <array>
#include <charconv>
#include <chrono>
#include <string>

#include "data/import/tables/table_cells.h"
#include "data/samples/label_index.h"

namespace lockstep {
namespace {

constexpr std::string_view kMonths[] = {"january", "february", "march",     "april",   "may",      "june",
                                        "july",    "august",   "september", "october", "november", "december"};
constexpr std::string_view kWeekdays[] = {"monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"};
constexpr double kSecondsOfDay = 86400;

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

// The number, from 1, of a name of a list, or of its beginning of at least three letters, such as sept; 0: it is none.
template <size_t count>
int named(std::string_view word, const std::string_view (&names)[count]) {
  if (word.size() < 3) return 0;
  std::string small(word);
  for (char& c : small) c = lower(c);
  for (size_t i = 0; i < count; ++i)
    if (names[i].starts_with(small) && (small.size() <= 4 || small.size() == names[i].size()))
      return static_cast<int>(i) + 1;
  return 0;
}

// What is left of a cell.
class Rest {
 public:
  explicit Rest(std::string_view text) : left_(text) {}

  bool empty() const { return left_.empty(); }
  char first() const { return left_.empty() ? '\0' : left_[0]; }
  bool starts_with(std::string_view text) const { return left_.starts_with(text); }
  bool take(std::string_view text) {
    if (!starts_with(text)) return false;
    left_.remove_prefix(text.size());
    return true;
  }
  bool take_spaces() {
    const size_t before = left_.size();
    while (first() == ' ') left_.remove_prefix(1);
    return left_.size() < before;
  }
  std::string_view digits() { return run(is_decimal_digit); }
  std::string_view letters() { return run(is_letter); }
  // Of so many digits; -1: there are not.
  int number(size_t least, size_t most) {
    const std::string_view text = digits();
    int value = -1;
    if (text.size() >= least && text.size() <= most) std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  }

 private:
  template <class Is>
  std::string_view run(Is is) {
    size_t size = 0;
    while (size < left_.size() && is(left_[size])) ++size;
    const std::string_view out = left_.substr(0, size);
    left_.remove_prefix(size);
    return out;
  }
  std::string_view left_;
};

// A part of a date: a number of some digits, or a month by its name.
struct Part {
  int value = 0;
  size_t digits = 0;  // 0: a name
};

std::optional<double> day(int y, int m, int d) {
  using namespace std::chrono;
  if (y < 1 || m < 1 || d < 1) return std::nullopt;
  const year_month_day date{year(y), month(static_cast<unsigned>(m)), std::chrono::day(static_cast<unsigned>(d))};
  if (!date.ok()) return std::nullopt;
  return static_cast<double>(sys_days(date).time_since_epoch().count());
}

std::optional<double> day_of(const std::array<Part, 3>& parts, size_t count, DateOrder order) {
  const auto is_year = [&](size_t i) { return parts[i].digits == 4; };
  const auto is_short = [&](size_t i) { return parts[i].digits == 1 || parts[i].digits == 2; };
  const auto is_name = [&](size_t i) { return parts[i].digits == 0; };
  const auto& [a, b, c] = parts;
  if (count == 2) {
    if (is_year(0) && !is_year(1)) return day(a.value, b.value, 1);
    return is_year(1) && !is_year(0) ? day(b.value, a.value, 1) : std::nullopt;
  }
  if (count != 3) return std::nullopt;
  if (is_year(0) && (is_short(1) || is_name(1)) && is_short(2)) return day(a.value, b.value, c.value);
  if (!is_year(2)) return std::nullopt;
  if (is_name(0) && is_short(1)) return day(c.value, a.value, b.value);
  if (is_short(0) && is_name(1)) return day(c.value, b.value, a.value);
  if (!is_short(0) || !is_short(1) || order == DateOrder::kYearFirst) return std::nullopt;
  return order == DateOrder::kDayFirst ? day(c.value, b.value, a.value) : day(c.value, a.value, b.value);
}

std::optional<double> take_date(Rest& rest, DateOrder order) {
  std::array<Part, 3> parts;
  size_t count = 0;
  char between = 0;
  bool named_month = false;
  for (;;) {
    Part& part = parts[count];
    if (is_letter(rest.first())) {
      part.value = named(rest.letters(), kMonths);
      if (part.value == 0 || named_month) return std::nullopt;
      named_month = true;
      if (rest.starts_with(". ")) rest.take(".");
    } else {
      const std::string_view digits = rest.digits();
      part.digits = digits.size();
      if (digits.size() == 8 && count == 0) {
        const auto of = [&](size_t at, size_t size) {
          int value = 0;
          std::from_chars(digits.data() + at, digits.data() + at + size, value);
          return value;
        };
        return day(of(0, 4), of(4, 2), of(6, 2));
      }
      if (digits.empty() || digits.size() == 3 || digits.size() > 4) return std::nullopt;
      std::from_chars(digits.data(), digits.data() + digits.size(), part.value);
      for (const char* ordinal : {"st", "nd", "rd", "th"})
        if (digits.size() <= 2 && rest.take(ordinal)) break;
    }
    if (++count == 3 || rest.empty()) break;
    const char sign = rest.first();
    if (sign == '-' || sign == '/' || sign == '.') rest.take(std::string_view(&sign, 1));
    else if (const bool comma = rest.take(","); !rest.take_spaces() && !comma) return std::nullopt;
    if (count > 1 && !named_month && sign != between && !is_letter(rest.first())) return std::nullopt;
    between = sign;
  }
  // 2026.03 is a number, and 3 2026 anything.
  if (count == 2 && !named_month && between != '-' && between != '/') return std::nullopt;
  if (count == 3 && !named_month && between == ' ') return std::nullopt;
  return day_of(parts, count, order);
}

// In seconds; `figures`: 1230 and 123005, as behind 20260301T.
std::optional<double> take_time(Rest& rest, bool figures) {
  const std::string_view first = rest.digits();
  int hour = 0, minute = 0, second = 0;
  const auto of = [&](std::string_view text) {
    int value = 0;
    std::from_chars(text.data(), text.data() + text.size(), value);
    return value;
  };
  bool minutes = true, seconds = false;
  if (figures && (first.size() == 4 || first.size() == 6)) {
    hour = of(first.substr(0, 2)), minute = of(first.substr(2, 2));
    seconds = first.size() == 6;
    if (seconds) second = of(first.substr(4));
  } else {
    if (first.empty() || first.size() > 2) return std::nullopt;
    hour = of(first);
    minutes = rest.take(":");
    if (minutes && (minute = rest.number(2, 2)) < 0) return std::nullopt;
    seconds = minutes && rest.take(":");
    if (seconds && (second = rest.number(2, 2)) < 0) return std::nullopt;
  }
  double fraction = 0;
  if (seconds && (rest.take(".") || rest.take(","))) {
    const std::string digits = "0." + std::string(rest.digits());
    if (digits.size() == 2) return std::nullopt;
    std::from_chars(digits.data(), digits.data() + digits.size(), fraction);
  }
  Rest after = rest;
  after.take_spaces();
  const std::string half(after.letters());
  const bool am = half == "AM" || half == "am", pm = half == "PM" || half == "pm";
  if (am || pm) {
    if (hour < 1 || hour > 12) return std::nullopt;
    hour = hour % 12 + (pm ? 12 : 0);
    rest = after;
  } else if (!minutes) {
    return std::nullopt;
  }
  if (hour > 23 || minute > 59 || second > 60) return std::nullopt;  // a leap second is the next one
  return 3600.0 * hour + 60.0 * minute + second + fraction;
}

// In seconds; nothing where there is none, or something else.
std::optional<double> take_offset(Rest& rest) {
  rest.take_spaces();
  if (rest.take("Z") || rest.take("UTC") || rest.take("GMT")) return 0;
  const double sign = rest.take("+") ? 1 : rest.take("-") ? -1 : 0;
  if (sign == 0) return std::nullopt;
  const std::string_view digits = rest.digits();
  if (digits.size() != 2 && digits.size() != 4) return std::nullopt;
  int hours = 0, minutes = 0;
  std::from_chars(digits.data(), digits.data() + 2, hours);
  if (digits.size() == 4) std::from_chars(digits.data() + 2, digits.data() + 4, minutes);
  else if (rest.take(":")) minutes = rest.number(2, 2);
  if (hours > 23 || minutes < 0 || minutes > 59) return std::nullopt;
  return sign * (3600.0 * hours + 60.0 * minutes);
}

}  // namespace

std::optional<DateCell> date_in(std::string_view cell, DateOrder order) {
  cell = without_white_space(cell);
  constexpr size_t kLongest = 64;
  if (cell.empty() || cell.size() > kLongest) return std::nullopt;
  if (is_decimal_digit(cell[0])) {
    Rest alone(cell);
    const std::optional<double> time = take_time(alone, false);
    if (time && alone.empty()) return DateCell{*time / kSecondsOfDay, DateKind::kTimeOfDay};
  }
  Rest rest(cell);
  Rest behind_weekday(cell);
  if (named(behind_weekday.letters(), kWeekdays) > 0) {
    behind_weekday.take(",");
    if (behind_weekday.take_spaces()) rest = behind_weekday;
  }
  const bool figures = Rest(rest).digits().size() == 8;
  const std::optional<double> date = take_date(rest, order);
  if (!date) return std::nullopt;
  if (rest.empty()) return DateCell{*date, DateKind::kDate};
  const bool comma = rest.take(",");
  if (!rest.take_spaces() && (comma || (!rest.take("T") && !rest.take("t")))) return std::nullopt;
  const std::optional<double> time = take_time(rest, figures);
  if (!time) return std::nullopt;
  if (rest.empty()) return DateCell{*date + *time / kSecondsOfDay, DateKind::kLocalTime};
  const std::optional<double> offset = take_offset(rest);
  if (!offset || !rest.empty()) return std::nullopt;
  return DateCell{*date + (*time - *offset) / kSecondsOfDay, DateKind::kUtcTime};
}

bool has_short_year(std::string_view cell) {
  Rest rest(without_white_space(cell));
  std::array<size_t, 3> digits{};
  char between = 0;
  for (size_t i = 0; i < digits.size(); ++i) {
    digits[i] = rest.digits().size();
    if (i == 2) break;
    const char sign = rest.first();
    if ((sign != '-' && sign != '/' && sign != '.') || (i == 1 && sign != between)) return false;
    between = sign;
    rest.take(std::string_view(&sign, 1));
  }
  const bool whole = rest.empty() || rest.first() == ' ';
  const bool full = digits == std::array<size_t, 3>{2, 2, 2};
  const bool with_slashes = between == '/' && (digits[0] == 1 || digits[0] == 2) && (digits[1] == 1 || digits[1] == 2);
  return whole && digits[2] == 2 && (full || with_slashes);
}

}  // namespace lockstep
