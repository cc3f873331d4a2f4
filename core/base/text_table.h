// Formats numbers and tables in plain text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// `rows`: the heading, then the data rows, all with the same number of cells. The first column is left-aligned, the
// others are right-aligned.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

// The number of terminal columns: one per UTF-8 sequence.
size_t columns(std::string_view text);
// The words of a text in lines of at most `width` columns, but for a word that is longer, each with its line end; the
// first line begins with `first`, the others with `indent`.
std::string wrapped(std::string_view text, size_t width, std::string_view first, std::string_view indent);

// A cell of a CSV file (RFC 4180): in quotes where the text needs them.
std::string csv_cell(const std::string& text);

// A number with this many digits after the point.
std::string fixed(double value, int digits);

// With this many significant digits.
double significant(double value, int digits);
// To three digits after the point, or three significant ones where that is finer: 12.346, 0.00123.
double rounded(double value);

std::string short_number(double value);  // 950, 12.3k, 4.56M, 0.012, 3.1e-06

}  // namespace lockstep
