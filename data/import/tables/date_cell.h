// Dates and times of day in a table's cells.
#pragma once

#include <optional>
#include <string_view>

#include "data/samples/cell_form.h"

namespace lockstep {

struct DateCell {
  double days;  // since 1970-01-01, 00:00, in UTC where the cell has an offset from it; of a time of day: since 00:00
  DateKind kind;
};

// The date, the time or both that a cell holds, white space around it aside; nothing where it is none. A date has a
// year of four digits: 2026-03-01, 2026-03 (its first day), 20260301, 1 Mar 2026, March 1, 2026, and with another order
// 1/3/2026, with any of - / . between its parts. A time is 12:30, 12:30:05.25 or 1:30 PM; behind a date it may have an
// offset from UTC, as Z or +02:00. The name of a weekday before a date is passed over.
std::optional<DateCell> date_in(std::string_view cell, DateOrder order);

// Whether it is a date in figures whose year has two digits, which date_in() does not read.
bool has_short_year(std::string_view cell);

}  // namespace lockstep
