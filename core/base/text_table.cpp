#include "core/base/text_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "core/base/error.h"

namespace lockstep {

std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == text.npos) return text;
  std::string out = "\"";
  for (char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + '"';
}

std::string text_table(const std::vector<std::vector<std::string>>& rows) {
  std::string out;
  for (auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) {
      size_t width = 0;
      for (auto& r : rows) width = std::max(width, r[i].size());
      const std::string pad(width - row[i].size(), ' ');
      out += str(i ? "  " : "", i ? pad : "", row[i], i ? "" : pad);
    }
    out += "\n";
  }
  return out;
}

std::string fixed(double value, int digits) {
  char text[330];  // the largest double has 309 digits
  std::snprintf(text, sizeof text, "%.*f", digits, value);
  return text;
}

double significant(double value, int digits) {
  if (value == 0 || !std::isfinite(value)) return value;
  const double scale = std::pow(10, digits - 1 - std::floor(std::log10(std::abs(value))));
  return std::isfinite(scale) && scale > 0 ? std::round(value * scale) / scale : value;
}

double rounded(double value) { return std::abs(value) < 1 ? significant(value, 3) : std::round(value * 1e3) / 1e3; }

std::string short_number(double value) {
  constexpr std::array<const char*, 5> kSuffixes = {"", "k", "M", "G", "T"};
  size_t i = 0;
  while (std::abs(value) >= 999.5 && i + 1 < kSuffixes.size()) value /= 1000, ++i;
  const double size = std::abs(value);
  if (i == 0 && size > 0 && size < 0.0995) {  // two significant digits
    std::array<char, 32> text{};
    snprintf(text.data(), text.size(), "%.2g", value);
    return text.data();
  }
  const int digits = size >= 99.95 || (i == 0 && value == std::floor(value)) ? 0 : size >= 9.995 ? 1 : 2;
  return fixed(value, digits) + kSuffixes[i];
}

size_t columns(std::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

std::string wrapped(std::string_view text, size_t width, std::string_view first, std::string_view indent) {
  std::string out, line(first);
  bool begins = true;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find(' ', at), text.size());
    const std::string_view word = text.substr(at, end - at);
    if (!begins && columns(line) + 1 + columns(word) > width) {
      out += line + "\n";
      line = indent;
      begins = true;
    }
    if (!begins) line += ' ';
    line += word;
    begins = false;
  }
  return out + line + "\n";
}

}  // namespace lockstep
