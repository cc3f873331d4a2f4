// Labels that are texts, and the numbers that they get. Plain functions.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/samples/dataset_file.h"
#include "data/text/jinja/value.h"
#include "data/text/valid_text.h"

namespace lockstep {

constexpr int64_t kManyLabels = 1000;  // different ones, which a column of numbers or texts may have by mistake

// A part of `text`, which is UTF-8: without the white space at its ends, as Python's str.strip() gives it.
inline std::string_view without_white_space(std::string_view text) {
  const auto is_space = [&](size_t at) {
    const bool is_other_ascii = text[at] > ' ' && static_cast<uint8_t>(text[at]) < 0x80;
    return !is_other_ascii && jinja::is_python_space(jinja::character_at(text, at));
  };
  const auto begins = [&](size_t at) { return at >= text.size() || (static_cast<uint8_t>(text[at]) & 0xC0) != 0x80; };
  while (!text.empty() && is_space(0)) {
    size_t end = 1;
    while (!begins(end)) ++end;
    text.remove_prefix(end);
  }
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && !begins(last)) --last;
    if (!is_space(last)) break;
    text.remove_suffix(text.size() - last);
  }
  return text;
}

// The name of the class or category that a cell, a field or a folder's name says: what every import takes from them. Of
// a whole number that was written as a floating-point number, such as 1.0, it is 1. `point`: the decimal one.
inline std::string_view label_text(std::string_view text, char point = '.') {
  text = without_white_space(text);
  const size_t sign = text.starts_with('-'), at = text.find_first_not_of("0123456789", sign);
  const bool is_whole = at != text.npos && at > sign && text[at] == point && at + 1 < text.size() &&
                        text.find_first_not_of('0', at + 1) == text.npos;
  return is_whole ? text.substr(0, at) : text;
}

// The number that a label is, or -1.
inline int64_t number_of_label(const std::string& label) {
  int64_t value = -1;
  const auto [end, error] = std::from_chars(label.data(), label.data() + label.size(), value);
  return error == std::errc() && end == label.data() + label.size() && std::to_string(value) == label ? value : -1;
}

// Gives each label its number: from 0 in their order, which is that of numbers where all are natural numbers, and of
// bytes otherwise. Throws ExitCode::kBadData naming `where`.
inline std::map<std::string, int32_t> index_of_labels(const std::set<std::string>& labels, const std::string& where,
                                                      std::vector<std::string>& names) {
  names.assign(labels.begin(), labels.end());
  if (std::all_of(names.begin(), names.end(), [](const std::string& n) { return number_of_label(n) >= 0; }))
    std::sort(names.begin(), names.end(),
              [](const std::string& a, const std::string& b) { return number_of_label(a) < number_of_label(b); });
  require(static_cast<int64_t>(names.size()) <= kMostClasses, ExitCode::kBadData, where, ": has ", names.size(),
          " different labels; at most ", kMostClasses, " are possible");
  std::map<std::string, int32_t> index;
  for (const std::string& n : names) {
    require(!n.empty(), ExitCode::kBadData, where, ": has a label of white space alone");
    require(n.find('\n') == n.npos, ExitCode::kBadData, where, ": the label '", n, "' has a line end in it");
    require(first_invalid(n, TextEncoding::kUtf8) < 0, ExitCode::kBadData, where, ": the label '", n, "' is no UTF-8");
    index.emplace(n, static_cast<int32_t>(index.size()));
  }
  return index;
}

// Finds names of classes or categories in other data: the name itself or, of files in which names are not label_text(),
// as imports once left them, the one with the same label_text().
class LabelNumbers {
 public:
  LabelNumbers() = default;
  template <class Names>
  explicit LabelNumbers(const Names& names) {
    int64_t number = 0;
    for (const std::string& name : names) numbers_.emplace(name, number++);
    number = 0;
    for (const std::string& name : names) numbers_.emplace(label_text(name), number++);
  }
  int64_t find(const std::string& text, char point = '.') const {  // -1: there is none
    auto at = numbers_.find(text);
    if (at == numbers_.end()) at = numbers_.find(std::string(label_text(text, point)));
    return at == numbers_.end() ? -1 : at->second;
  }

 private:
  std::unordered_map<std::string, int64_t> numbers_;
};

// Of labels that are numbers of classes: warns where some, of those from 0 to the largest, have no sample. `seen`: of
// each class. `otherwise`: what says that these classes are meant, or empty.
inline void warn_of_empty_classes(const std::string& where, const std::vector<bool>& seen,
                                  const std::string& otherwise = {}) {
  constexpr int64_t kNamed = 8;
  std::string empty;
  int64_t count = 0;
  for (size_t i = 0; i < seen.size(); ++i)
    if (!seen[i] && ++count <= kNamed) empty += str(count > 1 ? ", " : "", i);
  if (count == 0) return;
  const bool from_one = count == 1 && !seen[0];
  log_warning(str(where, ": its labels are numbers of ", seen.size(), " classes, from 0 to the largest, and class",
                  count > 1 ? "es " : " ", empty, count > kNamed ? str(" and ", count - kNamed, " more") : "",
                  count > 1 ? " have" : " has", " no sample, though the model has an output for ",
                  count > 1 ? "each of them; " : "it; ",
                  from_one ? "where labels count from 1, subtract 1 from each"
                           : "where these classes do not exist, renumber the labels from 0 without gaps",
                  otherwise.empty() ? "" : "; ", otherwise));
}
inline std::vector<bool> seen_classes(const std::vector<int32_t>& labels, int64_t classes) {
  std::vector<bool> seen(static_cast<size_t>(classes));
  for (int32_t label : labels) seen[static_cast<size_t>(label)] = true;
  return seen;
}

// data.validation takes the last samples: warns where these lack labels that others have.
inline void warn_of_label_order(const std::string& where, const std::vector<int32_t>& labels, int64_t classes) {
  const auto count = static_cast<int64_t>(labels.size());
  const std::set<int32_t> last(labels.begin() + count * 9 / 10, labels.end());
  if (count >= 100 && classes <= 20 && static_cast<int64_t>(last.size()) < classes)
    log_warning(str(where, ": the last tenth of the rows has ", last.size(), " of ", classes,
                    " labels, and data.validation takes the last rows: shuffle the rows first"));
}

// The same of numbers that a regression predicts.
inline void warn_of_number_order(const std::string& where, const std::string& column,
                                 const std::vector<double>& numbers) {
  const bool sorted =
      std::is_sorted(numbers.begin(), numbers.end()) || std::is_sorted(numbers.rbegin(), numbers.rend());
  if (numbers.size() >= 100 && sorted)
    log_warning(
        str(where, ": is sorted by '", column, "', and data.validation takes the last rows: shuffle the rows first"));
}

}  // namespace lockstep
