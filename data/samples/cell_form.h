// How the cells of a table say numbers: NumberForm of numbers, DateForm of dates and times. It is kept with a table's
// columns (data/samples/schema.h), so that further data is read in the same way.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep {

struct NumberForm {
  bool decimal_comma = false;
  char thousands = 0;  // between groups of digits: , . ' _ or a space, which stands for any; 0: nothing
  // Texts before or behind a number that are no part of it, such as $ or kg; "()" stands for negative numbers
  // of accounts: in parentheses, or with the sign behind.
  std::vector<std::string> strip = {};

  bool plain() const { return *this == NumberForm(); }
  friend bool operator==(const NumberForm&, const NumberForm&) = default;
};

enum class DateOrder : uint8_t { kYearFirst, kDayFirst, kMonthFirst };
// What a cell holds. Times of a column either all have an offset from UTC, or none has.
enum class DateKind : uint8_t { kDate, kLocalTime, kUtcTime, kTimeOfDay };

// Of a column of dates or times.
struct DateForm {
  DateOrder order = DateOrder::kYearFirst;  // of dates that do not begin with the year
  std::optional<DateKind> kind = {};        // that all cells have so far; dates may stand among times with dates
  friend bool operator==(const DateForm&, const DateForm&) = default;
};

// What a column holds that has cells of both kinds; nothing where it cannot.
inline std::optional<DateKind> joined(DateKind a, DateKind b) {
  if (a == b) return a;
  if (a == DateKind::kTimeOfDay || b == DateKind::kTimeOfDay) return std::nullopt;
  if (a == DateKind::kDate) return b;
  return b == DateKind::kDate ? std::optional(a) : std::nullopt;
}

constexpr const char* kDateOrders[] = {"ymd", "dmy", "mdy"};                                 // names, by DateOrder
constexpr const char* kDateKinds[] = {"dates", "local times", "UTC times", "times of day"};  // by DateKind

}  // namespace lockstep
