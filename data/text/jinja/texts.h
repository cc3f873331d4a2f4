// What methods, filters and tests share: their arguments, and what they do to texts. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/jinja/characters.h"
#include "data/text/jinja/value.h"

namespace lockstep::jinja {

inline constexpr int64_t kStepsOfPart = 8;  // of a text that is split

// Arguments of a kind; each throws Failure for another one, the first also where there is none.
const Text& text_at(const Arguments& a, size_t place, std::string_view name);
int64_t integer_at(const Arguments& a, size_t place, std::string_view name, int64_t standard);
bool truth_at(const Arguments& a, size_t place, std::string_view name, bool standard = false);

Text lower(const Text& t);
Text upper(const Text& t);
Text capitalized(const Text& t);
bool is_upper(const Text& t);  // has capitals, and no small letters
bool is_lower(const Text& t);
Text titled(const Text& t);        // Python's method: a letter is raised where none is before it
Text title_filter(const Text& t);  // Jinja's filter: words begin behind white space and some brackets
Text replaced(const Text& text, const Text& old, const Text& by, int64_t most);  // most < 0: all
Text joined(const std::vector<Value>& items, const Text& between);
Value split_lines(const Arguments& a);

List view_of(const Dict& d, bool keys, bool values);

// The text with another form of each character, which `turn` gives.
template <class Turn>
Text turned(const Text& text, Turn turn) {
  Text out;
  const std::vector<size_t> starts = character_starts(text.bytes);
  for (size_t i = 0; i + 1 < starts.size(); ++i) out.add(turn(character_at(text.bytes, starts[i])), text, starts[i]);
  return out;
}

}  // namespace lockstep::jinja
