// Parts of what reports say of dataset files, which several kinds of samples and targets have. Plain functions.
#pragma once

#include <string>
#include <vector>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/samples/inspect.h"

namespace lockstep {

// The first of many, between commas.
template <class List>
std::string joined(const List& list, size_t most) {
  std::string out;
  for (size_t i = 0; i < list.size() && i < most; ++i) out += str(i ? ", " : "", list[i]);
  return out + (list.size() > most ? ", ..." : "");
}

template <class List>
JsonText json_list(const List& values) {
  return json_array(std::vector<JsonValue>(values.begin(), values.end()));
}

// "12", or "12 (cat)" where the label has a name.
std::vector<std::string> counts_by_class(const DatasetReport& report);
// "duplicates: 2, of which 1 with another target: 17 (as 4), 25 (as 4)"
std::string duplicates_text(const DatasetReport& report);
JsonValue duplicates_json(const DatasetReport& report);  // null where they were not counted

}  // namespace lockstep
