#include "data/text/jinja/texts.h"

#include "core/base/error.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/vocabulary.h"

namespace lockstep::jinja {
namespace {

std::string raised(uint32_t c) { return c == 0xDF ? "SS" : to_utf8(upper_case(c)); }
std::string lowered(uint32_t c) { return c == 0x130 ? "i\u0307" : to_utf8(lower_case(c)); }

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

bool has_case(uint32_t c) { return upper_case(c) != c || lower_case(c) != c; }

Text lower(const Text& t) { return turned(t, lowered); }
Text upper(const Text& t) { return turned(t, raised); }
Text capitalized(const Text& t) {
  bool first = true;
  return turned(t, [&](uint32_t c) { return std::exchange(first, false) ? raised(c) : lowered(c); });
}
// Python's str.title(): a letter is raised where none is before it.
Text titled(const Text& t) {
  bool within = false;
  return turned(t, [&](uint32_t c) {
    const bool was = std::exchange(within, has_case(c));
    return was ? lowered(c) : raised(c);
  });
}
// Jinja's filter: words begin behind white space and some brackets.
Text title_filter(const Text& t) {
  bool begins = true;
  return turned(t, [&](uint32_t c) {
    const bool was = begins;
    begins = is_python_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    return was && !begins ? raised(c) : lowered(c);
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

bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
bool is_alpha(uint32_t c) { return has_case(c) || is_letter(c); }

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
