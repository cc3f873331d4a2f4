#include "data/text/jinja/texts.h"

#include "core/base/error.h"
#include "data/text/vocabulary.h"

namespace lockstep::jinja {
namespace {

std::vector<uint32_t> characters_of(const std::string& text) {
  const std::vector<size_t> starts = character_starts(text);
  std::vector<uint32_t> out;
  for (size_t i = 0; i + 1 < starts.size(); ++i) out.push_back(character_at(text, starts[i]));
  return out;
}

// The small form of character `at` of those from `first` on: a sigma at the end of a word has its own.
std::string lowered(const std::vector<uint32_t>& all, size_t at, size_t first) {
  if (all[at] != 0x3A3) return lower_of(all[at]);
  size_t before = at, behind = at + 1;
  while (before > first && is_case_ignorable(all[before - 1])) --before;
  while (behind < all.size() && is_case_ignorable(all[behind])) ++behind;
  const bool ends = before > first && is_cased(all[before - 1]) && (behind == all.size() || !is_cased(all[behind]));
  return ends ? "\u03C2" : "\u03C3";
}

// The text with another form of each character, which `turn` gives of all of them and an index.
template <class Turn>
Text turned_within(const Text& text, Turn turn) {
  const std::vector<uint32_t> all = characters_of(text.bytes);
  size_t at = 0;
  return turned(text, [&](uint32_t) { return turn(all, at++); });
}

bool is_of_case(const Text& t, bool (*wanted)(uint32_t), bool (*other)(uint32_t)) {
  bool some = false;
  for (const uint32_t c : characters_of(t.bytes)) {
    if (other(c) || is_title(c)) return false;
    some = some || wanted(c);
  }
  return some;
}

}  // namespace

const Text& text_at(const Arguments& a, size_t place, std::string_view name) {
  const Value* v = a.at(place, name);
  if (!v || !v->text()) throw Failure{str("needs a text as '", name, "'")};
  return *v->text();
}

int64_t integer_at(const Arguments& a, size_t place, std::string_view name, int64_t standard) {
  const Value* v = a.at(place, name);
  if (!v || v->is_none()) return standard;
  const auto w = v->whole();
  if (!w) throw Failure{str("needs an integer as '", name, "', not a ", type_name(*v))};
  return *w;
}

bool truth_at(const Arguments& a, size_t place, std::string_view name, bool standard) {
  const Value* v = a.at(place, name);
  return v ? is_true(*v) : standard;
}

Text lower(const Text& t) {
  return turned_within(t, [](const auto& all, size_t at) { return lowered(all, at, 0); });
}
Text upper(const Text& t) { return turned(t, upper_of); }
Text capitalized(const Text& t) {
  return turned_within(t, [](const auto& all, size_t at) { return at == 0 ? title_of(all[0]) : lowered(all, at, 0); });
}
bool is_upper(const Text& t) { return is_of_case(t, is_upper, is_lower); }
bool is_lower(const Text& t) { return is_of_case(t, is_lower, is_upper); }
// Python's str.title(): a letter is raised where none is before it.
Text titled(const Text& t) {
  bool within = false;
  return turned_within(t, [&](const auto& all, size_t at) {
    const bool was = std::exchange(within, is_cased(all[at]));
    return was ? lowered(all, at, 0) : title_of(all[at]);
  });
}
// Jinja's filter: words begin behind white space and some brackets.
Text title_filter(const Text& t) {
  const auto parts_words = [](uint32_t c) {
    return is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  size_t first = 0;  // of the word
  return turned_within(t, [&](const auto& all, size_t at) -> std::string {
    if (parts_words(all[at])) return first = at + 1, to_utf8(all[at]);
    return at == first ? upper_of(all[at]) : lowered(all, at, first + 1);
  });
}

Text replaced(const Text& text, const Text& old, const Text& by, int64_t most) {
  Text out;
  if (old.empty()) {
    const std::vector<size_t> starts = character_starts(text.bytes);
    for (size_t i = 0; i < starts.size(); ++i) {
      if (most < 0 || static_cast<int64_t>(i) < most) out += by;
      if (i + 1 < starts.size()) out += text.part(starts[i], starts[i + 1]);
    }
    return out;
  }
  size_t at = 0;
  for (int64_t n = 0; n != most; ++n) {
    const size_t found = find_text(text.bytes, old.bytes, at);
    if (found == std::string::npos) break;
    out += text.part(at, found), out += by;
    at = found + old.size();
  }
  return out += text.part(at, text.size());
}

Value split_lines(const Arguments& a) {
  const Text& text = *a.self.text();
  const bool keep = truth_at(a, 0, "keepends");
  List out;
  const std::vector<size_t> starts = character_starts(text.bytes);
  size_t begin = 0;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const uint32_t c = character_at(text.bytes, starts[i]);
    const bool ends = (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
    if (!ends) continue;
    const size_t line_end = starts[i];
    if (c == '\r' && i + 2 < starts.size() && text.bytes[starts[i + 1]] == '\n') ++i;
    Budget::spend(kStepsOfPart);
    out.items.emplace_back(text.part(begin, keep ? starts[i + 1] : line_end));
    begin = starts[i + 1];
  }
  if (begin < text.size()) out.items.emplace_back(text.part(begin, text.size()));
  return out;
}

Text joined(const std::vector<Value>& items, const Text& between) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += between;
    out += to_text(items[i]);
  }
  return out;
}

List view_of(const Dict& d, bool keys, bool values) {
  List out{{}, List::Kind::kView};
  for (const auto& [key, value] : d.members)
    out.items.push_back(!values ? key : !keys ? value : Value(List{{key, value}, List::Kind::kTuple}));
  return out;
}

}  // namespace lockstep::jinja
