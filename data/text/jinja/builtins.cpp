// The filters, tests and methods that chat templates use, as Jinja 3.1 and Python have them.
#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "core/base/error.h"
#include "data/text/jinja/value.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/vocabulary.h"

namespace lockstep::jinja {
namespace {

constexpr int64_t kStepsOfPart = 8;  // of a text that is split

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

bool truth_at(const Arguments& a, size_t place, std::string_view name, bool standard = false) {
  const Value* v = a.at(place, name);
  return v ? is_true(*v) : standard;
}

// The text without what changes under `turn`, which gives the new form of each character.
template <class Turn>
Text turned(const Text& text, Turn turn) {
  Text out;
  const std::vector<size_t> starts = character_starts(text.bytes);
  for (size_t i = 0; i + 1 < starts.size(); ++i) out.add(turn(character_at(text.bytes, starts[i])), text, starts[i]);
  return out;
}

std::string raised(uint32_t c) { return c == 0xDF ? "SS" : to_utf8(upper_case(c)); }
std::string lowered(uint32_t c) { return c == 0x130 ? "i\u0307" : to_utf8(lower_case(c)); }
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
    const size_t found = text.bytes.find(old.bytes, at);
    if (found == std::string::npos) break;
    out += text.part(at, found), out += by;
    at = found + old.size();
  }
  return out += text.part(at, text.size());
}

Value split(const Arguments& a, bool from_right) {
  const Text& text = *a.self.text();
  const Value* separator = a.at(0, "sep");
  const int64_t most = integer_at(a, 1, "maxsplit", -1);
  List out;
  const auto add = [&](Text part) {
    Budget::spend(kStepsOfPart);
    out.items.emplace_back(std::move(part));
  };
  if (separator && !separator->is_none()) {
    const Text& by = text_at(a, 0, "sep");
    if (by.empty()) throw Failure{"splits by an empty text"};
    if (from_right) {
      size_t end = text.size();
      std::vector<Value> parts;
      for (int64_t n = 0; n != most && end >= by.size(); ++n) {
        const size_t found = text.bytes.rfind(by.bytes, end - by.size());
        if (found == std::string::npos) break;
        Budget::spend(kStepsOfPart);
        parts.emplace_back(text.part(found + by.size(), end));
        end = found;
      }
      parts.emplace_back(text.part(0, end));
      out.items.assign(parts.rbegin(), parts.rend());
      return out;
    }
    size_t at = 0;
    for (int64_t n = 0; n != most; ++n) {
      const size_t found = text.bytes.find(by.bytes, at);
      if (found == std::string::npos) break;
      add(text.part(at, found));
      at = found + by.size();
    }
    add(text.part(at, text.size()));
    return out;
  }
  if (from_right && most >= 0) throw Failure{"rsplit of white space with a count is not supported"};
  const std::vector<size_t> starts = character_starts(text.bytes);
  const size_t end = starts.size() - 1;
  const auto space = [&](size_t at) { return is_python_space(character_at(text.bytes, starts[at])); };
  for (size_t at = 0; at < end;) {
    while (at < end && space(at)) ++at;
    if (at == end) break;
    if (static_cast<int64_t>(out.items.size()) == most) {
      add(stripped(text.part(starts[at], text.size()), nullptr, Sides::kRight));
      break;
    }
    const size_t begin = at;
    while (at < end && !space(at)) ++at;
    add(text.part(starts[begin], starts[at]));
  }
  return out;
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

// Whether a text begins, or ends, with another one or one of several.
Value affix(const Arguments& a, bool begins) {
  const Value* with = a.at(0, "prefix");
  const auto is = [&](const Value& v) {
    if (!v.text()) throw Failure{str("needs a text, not a ", type_name(v))};
    const std::string &whole = a.self.text()->bytes, &part = v.text()->bytes;
    return begins ? whole.starts_with(part) : whole.ends_with(part);
  };
  if (!with || a.positional.size() > 1) throw Failure{"needs one text"};
  if (!with->list()) return is(*with);
  return std::any_of(with->list()->items.begin(), with->list()->items.end(), is);
}

Value find(const Arguments& a, bool last) {
  const std::string &whole = a.self.text()->bytes, &part = text_at(a, 0, "sub").bytes;
  const size_t found = last ? whole.rfind(part) : whole.find(part);
  if (found == std::string::npos) return int64_t{-1};
  return static_cast<int64_t>(character_starts(whole.substr(0, found)).size()) - 1;
}

Value count(const Arguments& a) {
  const std::string &whole = a.self.text()->bytes, &part = text_at(a, 0, "sub").bytes;
  if (part.empty()) return static_cast<int64_t>(character_starts(whole).size());
  int64_t n = 0;
  for (size_t at = whole.find(part); at != std::string::npos; at = whole.find(part, at + part.size())) ++n;
  return n;
}

Text joined(const std::vector<Value>& items, const Text& between) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out += between;
    out += to_text(items[i]);
  }
  return out;
}

template <class Is>
Value all_are(const Arguments& a, Is is) {
  const std::string& text = a.self.text()->bytes;
  const std::vector<size_t> starts = character_starts(text);
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    if (!is(character_at(text, starts[i]))) return false;
  return !text.empty();
}

bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
bool is_alpha(uint32_t c) { return has_case(c) || is_letter(c); }

using Method = Value (*)(const Arguments&);
template <Sides kSides>
Value strip(const Arguments& a) {
  const Value* characters = a.at(0, "chars");
  const bool given = characters && !characters->is_none();
  return stripped(*a.self.text(), given ? &text_at(a, 0, "chars").bytes : nullptr, kSides);
}

// Python's str.format(), of fields without conversions and formats.
Value formatted(const Arguments& a);

const std::map<std::string_view, Method>& text_methods() {
  static const std::map<std::string_view, Method> all{
      {"strip", strip<Sides::kBoth>},
      {"lstrip", strip<Sides::kLeft>},
      {"rstrip", strip<Sides::kRight>},
      {"split", [](const Arguments& a) { return split(a, false); }},
      {"rsplit", [](const Arguments& a) { return split(a, true); }},
      {"splitlines", split_lines},
      {"startswith", [](const Arguments& a) { return affix(a, true); }},
      {"endswith", [](const Arguments& a) { return affix(a, false); }},
      {"replace",
       [](const Arguments& a) {
         return Value(
             replaced(*a.self.text(), text_at(a, 0, "old"), text_at(a, 1, "new"), integer_at(a, 2, "count", -1)));
       }},
      {"upper", [](const Arguments& a) { return Value(upper(*a.self.text())); }},
      {"lower", [](const Arguments& a) { return Value(lower(*a.self.text())); }},
      {"title", [](const Arguments& a) { return Value(titled(*a.self.text())); }},
      {"capitalize", [](const Arguments& a) { return Value(capitalized(*a.self.text())); }},
      {"join",
       [](const Arguments& a) {
         const Value* items = a.at(0, "iterable");
         if (!items) throw Failure{"needs a list"};
         const auto all = items_of(*items);
         for (const Value& v : all)
           if (!v.text()) throw Failure{str("joins texts, not a ", type_name(v))};
         return Value(joined(all, *a.self.text()));
       }},
      {"find", [](const Arguments& a) { return find(a, false); }},
      {"format", formatted},
      {"rfind", [](const Arguments& a) { return find(a, true); }},
      {"count", count},
      {"isdigit", [](const Arguments& a) { return all_are(a, is_digit); }},
      {"isalpha", [](const Arguments& a) { return all_are(a, is_alpha); }},
      {"isalnum", [](const Arguments& a) { return all_are(a, [](uint32_t c) { return is_digit(c) || is_alpha(c); }); }},
      {"isspace", [](const Arguments& a) { return all_are(a, is_python_space); }},
      {"isupper",
       [](const Arguments& a) {
         return Value(equal(a.self, upper(*a.self.text())) && !equal(a.self, lower(*a.self.text())));
       }},
      {"islower",
       [](const Arguments& a) {
         return Value(equal(a.self, lower(*a.self.text())) && !equal(a.self, upper(*a.self.text())));
       }},
      {"removeprefix",
       [](const Arguments& a) {
         const Text &t = *a.self.text(), &p = text_at(a, 0, "prefix");
         return Value(t.bytes.starts_with(p.bytes) ? t.part(p.size(), t.size()) : t);
       }},
      {"removesuffix",
       [](const Arguments& a) {
         const Text &t = *a.self.text(), &p = text_at(a, 0, "suffix");
         return Value(t.bytes.ends_with(p.bytes) ? t.part(0, t.size() - p.size()) : t);
       }},
      {"zfill", [](const Arguments& a) {
         Text t = *a.self.text(), sign;
         if (!t.empty() && (t.bytes[0] == '-' || t.bytes[0] == '+')) sign = t.part(0, 1), t = t.part(1, t.size());
         const int64_t width = std::min<int64_t>(integer_at(a, 0, "width", 0), 1 << 20);
         const int64_t have = length_of(a.self);
         sign += std::string(static_cast<size_t>(std::max<int64_t>(0, width - have)), '0');
         return Value(sign += t);
       }}};
  return all;
}

Value formatted(const Arguments& a) {
  const Text& text = *a.self.text();
  Text out;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text.bytes[at];
    if ((c == '{' || c == '}') && at + 1 < text.size() && text.bytes[at + 1] == c) {
      out += text.part(at, at + 1);
      at += 2;
      continue;
    }
    if (c == '}') throw Failure{"the text has a } without {"};
    if (c != '{') {
      const size_t end = std::min(text.bytes.find_first_of("{}", at), text.size());
      out += text.part(at, end);
      at = end;
      continue;
    }
    const size_t end = text.bytes.find('}', at);
    if (end == std::string::npos) throw Failure{"the text has a { without }"};
    const std::string field = text.bytes.substr(at + 1, end - at - 1);
    if (field.find_first_of("!:.[{") != std::string::npos)
      throw Failure{str("the field {", field, "} is not supported: fields are {}, {0} and {name}")};
    const bool number =
        !field.empty() && std::all_of(field.begin(), field.end(), [](char d) { return d >= '0' && d <= '9'; });
    const Value* value = field.empty()                ? a.at(next++, "")
                         : number && field.size() < 6 ? a.at(static_cast<size_t>(std::stoi(field)), "")
                                                      : a.at(SIZE_MAX, field);
    if (!value) throw Failure{str("there is nothing for the field {", field, "}")};
    out += to_text(*value);
    at = end + 1;
  }
  return out;
}

List view_of(const Dict& d, bool keys, bool values) {
  List out{{}, List::Kind::kView};
  for (const auto& [key, value] : d.members)
    out.items.push_back(!values ? key : !keys ? value : Value(List{{key, value}, List::Kind::kTuple}));
  return out;
}

const std::map<std::string_view, Method>& dict_methods() {
  static const std::map<std::string_view, Method> all{
      {"items", [](const Arguments& a) { return Value(view_of(*a.self.dict(), true, true)); }},
      {"keys", [](const Arguments& a) { return Value(view_of(*a.self.dict(), true, false)); }},
      {"values", [](const Arguments& a) { return Value(view_of(*a.self.dict(), false, true)); }},
      {"copy", [](const Arguments& a) { return Value(std::make_shared<Dict>(*a.self.dict())); }},
      {"get", [](const Arguments& a) {
         const Value *key = a.at(0, "key"), *standard = a.at(1, "default");
         const Value* found = key ? a.self.dict()->find(*key) : nullptr;
         return found ? *found : standard ? *standard : Value();
       }}};
  return all;
}

const std::map<std::string_view, Method>& list_methods() {
  static const std::map<std::string_view, Method> all{
      {"index",
       [](const Arguments& a) {
         const auto& items = a.self.list()->items;
         const Value* wanted = a.at(0, "value");
         for (size_t i = 0; wanted && i < items.size(); ++i)
           if (equal(items[i], *wanted)) return Value(static_cast<int64_t>(i));
         throw Failure{"the value is not in the list"};
       }},
      {"copy", [](const Arguments& a) { return a.self; }},
      {"count", [](const Arguments& a) {
         const auto& items = a.self.list()->items;
         const Value* wanted = a.at(0, "value");
         return Value(static_cast<int64_t>(
             std::count_if(items.begin(), items.end(), [&](const Value& v) { return wanted && equal(v, *wanted); })));
       }}};
  return all;
}

// Methods that change a value, which a template may not do.
constexpr std::string_view kListChanges[] = {"append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"};
constexpr std::string_view kDictChanges[] = {"clear", "pop", "popitem", "setdefault", "update"};

template <class Names>
bool is_among(const Names& names, std::string_view name) {
  return std::find(std::begin(names), std::end(names), name) != std::end(names);
}

// --- filters

const Text& self_text(const Arguments& a, Text& held) {
  return a.self.text() ? *a.self.text() : held = to_text(a.self);
}

template <Text (*kTurn)(const Text&)>
Value on_text(const Arguments& a) {
  Text held;
  return kTurn(self_text(a, held));
}

// The attribute that `path` names, "function.name" or "0", of a value.
Value by_path(const Value& of, const Value& path) {
  if (!path.text()) return element_of(of, path);
  Value out = of;
  const std::string& all = path.text()->bytes;
  for (size_t at = 0; at <= all.size();) {
    const size_t end = std::min(all.find('.', at), all.size());
    const std::string name = all.substr(at, end - at);
    const bool number = !name.empty() &&
                        std::all_of(name.begin(), name.end(), [](char c) { return is_digit(static_cast<uint8_t>(c)); });
    out =
        element_of(out, number && name.size() < 10 ? Value(static_cast<int64_t>(std::stoll(name))) : Value(Text(name)));
    at = end + 1;
  }
  return out;
}

// The items by which a filter sorts or picks: themselves, or an attribute of each.
Value key_of(const Value& item, const Value* attribute) {
  return attribute && !attribute->is_none() ? by_path(item, *attribute) : item;
}

Value without_case(const Value& v) { return v.text() ? Value(lower(*v.text())) : v; }

Value sorted(const Arguments& a) {
  List out{items_of(a.self)};
  const bool reverse = truth_at(a, 0, "reverse"), cased = truth_at(a, 1, "case_sensitive");
  const Value* attribute = a.at(2, "attribute");
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& v : out.items) {
    const Value key = key_of(v, attribute);
    keyed.emplace_back(cased ? key : without_case(key), v);
  }
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& x, const auto& y) {
    return reverse ? compare(y.first, x.first) < 0 : compare(x.first, y.first) < 0;
  });
  for (size_t i = 0; i < keyed.size(); ++i) out.items[i] = keyed[i].second;
  return out;
}

Value dict_sorted(const Arguments& a) {
  if (!a.self.dict()) throw Failure{str("needs an object, not a ", type_name(a.self))};
  List pairs = view_of(*a.self.dict(), true, true);
  pairs.kind = List::Kind::kList;
  const Value* by = a.at(1, "by");
  const bool cased = truth_at(a, 0, "case_sensitive"), reverse = truth_at(a, 2, "reverse");
  const size_t place = by && by->text() && by->text()->bytes == "value" ? 1 : 0;
  std::stable_sort(pairs.items.begin(), pairs.items.end(), [&](const Value& x, const Value& y) {
    const Value &k = x.list()->items[place], &l = y.list()->items[place];
    const int order = cased ? compare(k, l) : compare(without_case(k), without_case(l));
    return reverse ? order > 0 : order < 0;
  });
  return pairs;
}

Value extreme(const Arguments& a, bool most) {
  const bool cased = truth_at(a, 0, "case_sensitive");
  const Value* attribute = a.at(1, "attribute");
  const std::vector<Value> items = items_of(a.self);
  if (items.empty()) return Value::undefined("there is no item");
  const auto key = [&](const Value& v) {
    const Value k = key_of(v, attribute);
    return cased ? k : without_case(k);
  };
  size_t best = 0;
  for (size_t i = 1; i < items.size(); ++i) {
    const int order = compare(key(items[i]), key(items[best]));
    if (most ? order > 0 : order < 0) best = i;
  }
  return items[best];
}

Value sum(const Arguments& a) {
  const Value *attribute = a.at(0, "attribute"), *start = a.at(1, "start");
  int64_t whole = 0;
  double real = 0;
  bool is_real = false;
  const auto add = [&](const Value& v) {
    const auto w = v.whole();
    const auto n = v.number();
    if (!n) throw Failure{str("adds numbers, not a ", type_name(v))};
    if (w && !is_real) {
      if (__builtin_add_overflow(whole, *w, &whole)) throw Failure{"the sum is too large"};
      return;
    }
    if (!is_real) real = static_cast<double>(whole), is_real = true;
    real += *n;
  };
  if (start) add(*start);
  for (const Value& v : items_of(a.self)) add(key_of(v, attribute));
  return is_real ? Value(real) : Value(whole);
}

Value unique(const Arguments& a) {
  const bool cased = truth_at(a, 0, "case_sensitive");
  const Value* attribute = a.at(1, "attribute");
  List out{{}, List::Kind::kGenerator};
  std::vector<Value> seen;
  for (const Value& v : items_of(a.self)) {
    const Value full = key_of(v, attribute), key = cased ? full : without_case(full);
    if (std::any_of(seen.begin(), seen.end(), [&](const Value& s) { return equal(s, key); })) continue;
    seen.push_back(key);
    out.items.push_back(v);
  }
  return out;
}

// Calls a test by the arguments of select and its like, from `place` on.
bool passes(const Arguments& a, size_t place, const Value& item) {
  if (a.positional.size() <= place) return is_true(item);
  const Text& name = text_at(a, place, "test");
  const Builtin test = test_named(name.bytes);
  if (!test) throw Failure{str("there is no test '", name.bytes, "'")};
  Arguments own{item, {a.positional.begin() + static_cast<std::ptrdiff_t>(place) + 1, a.positional.end()}, a.named};
  return is_true(test(own));
}

Value picked(const Arguments& a, bool by_attribute, bool wanted) {
  List out{{}, List::Kind::kGenerator};
  if (by_attribute && a.positional.empty()) throw Failure{"needs the name of an attribute"};
  if (!is_true(a.self)) return out;
  for (const Value& item : items_of(a.self)) {
    const bool is = by_attribute ? passes(a, 1, by_path(item, a.positional[0])) : passes(a, 0, item);
    if (is == wanted) out.items.push_back(item);
  }
  return out;
}

Value mapped(const Arguments& a) {
  List out{{}, List::Kind::kGenerator};
  const Value* attribute = a.positional.empty() ? a.at(0, "attribute") : nullptr;
  const Value* standard = attribute ? a.at(1, "default") : nullptr;
  if (!attribute && a.positional.empty()) throw Failure{"needs the name of a filter, or attribute="};
  if (!is_true(a.self)) return out;
  for (const Value& item : items_of(a.self)) {
    if (attribute) {
      Value got = by_path(item, *attribute);
      out.items.push_back(got.undefined() && standard ? *standard : got);
      continue;
    }
    const Text& name = text_at(a, 0, "filter");
    const Builtin filter = filter_named(name.bytes);
    if (!filter) throw Failure{str("there is no filter '", name.bytes, "'")};
    out.items.push_back(filter({item, {a.positional.begin() + 1, a.positional.end()}, a.named}));
  }
  return out;
}

Value reversed(const Arguments& a) {
  if (a.self.text()) return slice_of(a.self, {}, {}, int64_t{-1});
  List out{items_of(a.self), List::Kind::kGenerator};
  std::reverse(out.items.begin(), out.items.end());
  return out;
}

Value indented(const Arguments& a) {
  Text held;
  const Text& text = self_text(a, held);
  const Value* width = a.at(0, "width");
  const std::string margin =
      width && width->text()
          ? width->text()->bytes
          : std::string(static_cast<size_t>(std::clamp<int64_t>(integer_at(a, 0, "width", 4), 0, 1 << 16)), ' ');
  const bool first = truth_at(a, 1, "first"), blank = truth_at(a, 2, "blank");
  // Jinja adds a line end, so that the last line counts when it is empty; splitlines() then drops it again.
  Text whole = text;
  whole += "\n";
  Text out;
  const Value lines = split_lines({Value(whole), {}, {}});
  const auto& all = lines.list()->items;
  for (size_t i = 0; i < all.size(); ++i) {
    const Text& line = *all[i].text();
    if (i > 0) out += "\n";
    if (i > 0 ? blank || !line.empty() : first) out += margin;
    out += line;
  }
  return out;
}

Value batched(const Arguments& a) {
  const int64_t size = integer_at(a, 0, "linecount", 0);
  if (size < 1) throw Failure{"needs a count above 0"};
  const Value* fill = a.at(1, "fill_with");
  List out{{}, List::Kind::kGenerator}, part;
  for (const Value& v : items_of(a.self)) {
    if (static_cast<int64_t>(part.items.size()) == size) out.items.emplace_back(std::exchange(part, {}));
    part.items.push_back(v);
  }
  while (!part.items.empty() && fill && !fill->is_none() &&
         static_cast<int64_t>(part.items.size()) < std::min<int64_t>(size, 1 << 16))
    part.items.push_back(*fill);
  if (!part.items.empty()) out.items.emplace_back(std::move(part));
  return out;
}

Value as_integer(const Arguments& a) {
  const Value* standard = a.at(0, "default");
  const Value otherwise = standard ? *standard : Value(int64_t{0});
  if (const auto w = a.self.whole()) return *w;
  if (const double* d = a.self.real()) return std::abs(*d) < 9e18 ? Value(static_cast<int64_t>(*d)) : otherwise;
  if (!a.self.text()) return otherwise;
  const std::string text = stripped(*a.self.text(), nullptr, Sides::kBoth).bytes;
  try {
    size_t used = 0;
    const int64_t base = integer_at(a, 1, "base", 10);
    if (base != 0 && (base < 2 || base > 36)) return otherwise;
    const long long v = std::stoll(text, &used, static_cast<int>(base));
    if (used == text.size()) return static_cast<int64_t>(v);
    const double d = std::stod(text, &used);
    if (used == text.size() && std::abs(d) < 9e18) return static_cast<int64_t>(d);
  } catch (const std::exception&) {
  }
  return otherwise;
}

Value as_real(const Arguments& a) {
  const Value* standard = a.at(0, "default");
  if (const auto n = a.self.number()) return *n;
  if (a.self.text()) try {
      const std::string text = stripped(*a.self.text(), nullptr, Sides::kBoth).bytes;
      size_t used = 0;
      const double d = std::stod(text, &used);
      if (used == text.size()) return d;
    } catch (const std::exception&) {
    }
  return standard ? *standard : Value(0.0);
}

Value rounded(const Arguments& a) {
  const auto n = a.self.number();
  if (!n) throw Failure{str("rounds numbers, not a ", type_name(a.self))};
  const int64_t places = std::clamp<int64_t>(integer_at(a, 0, "precision", 0), -300, 300);
  const Value* how = a.at(1, "method");
  const std::string method = how && how->text() ? how->text()->bytes : "common";
  const double scale = std::pow(10.0, static_cast<double>(places));
  const auto whole = a.self.whole();
  if (method == "common" && whole && places >= 0) return *whole;
  if (method == "common" && whole && std::abs(*n) < 9e15)
    return static_cast<int64_t>(std::nearbyint(*n * scale) / scale);
  if (method == "ceil") return std::ceil(*n * scale) / scale;
  if (method == "floor") return std::floor(*n * scale) / scale;
  if (method != "common") throw Failure{"the method is common, ceil or floor"};
  if (places < 0) return std::nearbyint(*n * scale) / scale;
  char digits[700];
  std::snprintf(digits, sizeof digits, "%.*f", static_cast<int>(places), *n);  // exact, half to even, as Python's round
  const double out = std::strtod(digits, nullptr);
  return out;
}

Text with_escapes(const Text& text) {
  if (text.markup) return text;
  Text out = turned(text, [](uint32_t c) -> std::string {
    switch (c) {
      case '&': return "&amp;";
      case '<': return "&lt;";
      case '>': return "&gt;";
      case '"': return "&#34;";
      case '\'': return "&#39;";
      default: return to_utf8(c);
    }
  });
  out.markup = true;
  return out;
}

Value json(const Arguments& a) {
  JsonStyle style;
  style.ascii = truth_at(a, 0, "ensure_ascii");
  if (const Value* indent = a.at(1, "indent"); indent && !indent->is_none()) {
    style.indent =
        indent->text()
            ? indent->text()->bytes
            : std::string(static_cast<size_t>(std::clamp<int64_t>(integer_at(a, 1, "indent", 0), 0, 64)), ' ');
    style.comma = ",";
  }
  if (const Value* separators = a.at(2, "separators"); separators && !separators->is_none()) {
    const auto both = items_of(*separators);
    if (both.size() != 2 || !both[0].text() || !both[1].text()) throw Failure{"needs two texts as separators"};
    style.comma = both[0].text()->bytes, style.colon = both[1].text()->bytes;
  }
  style.sorted = truth_at(a, 3, "sort_keys");
  return to_json(a.self, style);
}

Value first_or_last(const Arguments& a, bool last) {
  if (const List* l = a.self.list(); l && l->kind == List::Kind::kGenerator && !last) {  // takes one item
    if (*l->taken == l->items.size()) return Value::undefined("there is no first item");
    return l->items[(*l->taken)++];
  }
  const std::vector<Value> items = items_of(a.self);
  if (items.empty()) return Value::undefined("there is no first item");
  return last ? items.back() : items.front();
}

const std::map<std::string_view, Builtin>& filters() {
  static const std::map<std::string_view, Builtin> all{
      {"abs",
       [](const Arguments& a) {
         if (const auto w = a.self.whole(); w && *w != std::numeric_limits<int64_t>::min()) return Value(std::abs(*w));
         if (const auto n = a.self.number()) return Value(std::abs(*n));
         throw Failure{str("needs a number, not a ", type_name(a.self))};
       }},
      {"batch", batched},
      {"capitalize", on_text<capitalized>},
      {"count", [](const Arguments& a) { return Value(length_of(a.self)); }},
      {"default",
       [](const Arguments& a) {
         const Value* standard = a.at(0, "default_value");
         const bool absent = a.self.undefined() || (truth_at(a, 1, "boolean") && !is_true(a.self));
         return !absent ? a.self : standard ? *standard : Value("");
       }},
      {"dictsort", dict_sorted},
      {"escape", on_text<with_escapes>},
      {"format",
       [](const Arguments& a) {
         Text held;
         return Value(percent_formatted(self_text(a, held), a.positional));
       }},
      {"first", [](const Arguments& a) { return first_or_last(a, false); }},
      {"float", as_real},
      {"indent", indented},
      {"int", as_integer},
      {"items",
       [](const Arguments& a) {
         if (a.self.undefined()) return Value(List{{}, List::Kind::kGenerator});
         if (!a.self.dict()) throw Failure{str("needs an object, not a ", type_name(a.self))};
         List out = view_of(*a.self.dict(), true, true);
         out.kind = List::Kind::kGenerator;
         return Value(std::move(out));
       }},
      {"join",
       [](const Arguments& a) {
         const Value *between = a.at(0, "d"), *attribute = a.at(1, "attribute");
         std::vector<Value> items = items_of(a.self);
         for (Value& v : items) v = key_of(v, attribute);
         return Value(joined(items, between ? to_text(*between) : Text()));
       }},
      {"last", [](const Arguments& a) { return first_or_last(a, true); }},
      {"length", [](const Arguments& a) { return Value(length_of(a.self)); }},
      {"list", [](const Arguments& a) { return Value(List{items_of(a.self)}); }},
      {"lower", on_text<lower>},
      {"map", mapped},
      {"max", [](const Arguments& a) { return extreme(a, true); }},
      {"min", [](const Arguments& a) { return extreme(a, false); }},
      {"reject", [](const Arguments& a) { return picked(a, false, false); }},
      {"rejectattr", [](const Arguments& a) { return picked(a, true, false); }},
      {"replace",
       [](const Arguments& a) {
         Text held;
         return Value(
             replaced(self_text(a, held), text_at(a, 0, "old"), text_at(a, 1, "new"), integer_at(a, 2, "count", -1)));
       }},
      {"reverse", reversed},
      {"round", rounded},
      {"safe",
       [](const Arguments& a) {
         Text out = to_text(a.self);
         out.markup = true;
         return Value(std::move(out));
       }},
      {"select", [](const Arguments& a) { return picked(a, false, true); }},
      {"selectattr", [](const Arguments& a) { return picked(a, true, true); }},
      {"sort", sorted},
      {"string", [](const Arguments& a) { return Value(to_text(a.self)); }},
      {"sum", sum},
      {"title", on_text<title_filter>},
      {"tojson", json},
      {"trim",
       [](const Arguments& a) {
         Text held;
         const Value* characters = a.at(0, "chars");
         const bool given = characters && !characters->is_none();
         return Value(stripped(self_text(a, held), given ? &text_at(a, 0, "chars").bytes : nullptr, Sides::kBoth));
       }},
      {"unique", unique},
      {"upper", on_text<upper>},
      {"wordcount", [](const Arguments& a) {
         Text held;
         const std::string& text = self_text(a, held).bytes;  // words as \w+ finds them
         int64_t words = 0;
         bool within = false;
         const std::vector<size_t> starts = character_starts(text);
         for (size_t i = 0; i + 1 < starts.size(); ++i) {
           const uint32_t c = character_at(text, starts[i]);
           const bool is = c == '_' || is_digit(c) || is_alpha(c);
           words += is && !within;
           within = is;
         }
         return Value(words);
       }}};
  return all;
}

// --- tests

template <class Is>
Value ordered(const Arguments& a, Is is) {
  const Value* other = a.at(0, "other");
  if (!other) throw Failure{"needs a value to compare with"};
  return is(compare(a.self, *other));
}

bool equals_argument(const Arguments& a) {
  const Value* other = a.at(0, "other");
  if (!other) throw Failure{"needs a value to compare with"};
  return equal(a.self, *other);
}

int64_t remainder_of(const Arguments& a, int64_t by) {
  const auto w = a.self.whole();
  if (!w || by == 0) throw Failure{"needs integers, and no division by 0"};
  if (by == -1) return 0;
  const int64_t rest = *w % by;
  return rest != 0 && (rest < 0) != (by < 0) ? rest + by : rest;
}

const std::map<std::string_view, Builtin>& tests() {
  static const std::map<std::string_view, Builtin> all{
      {"boolean", [](const Arguments& a) { return Value(a.self.boolean() != nullptr); }},
      {"callable", [](const Arguments& a) { return Value(a.self.function() || a.self.undefined()); }},
      {"defined", [](const Arguments& a) { return Value(!a.self.undefined()); }},
      {"divisibleby", [](const Arguments& a) { return Value(remainder_of(a, integer_at(a, 0, "num", 0)) == 0); }},
      {"eq", [](const Arguments& a) { return Value(equals_argument(a)); }},
      {"even", [](const Arguments& a) { return Value(remainder_of(a, 2) == 0); }},
      {"false", [](const Arguments& a) { return Value(a.self.boolean() && !*a.self.boolean()); }},
      {"float", [](const Arguments& a) { return Value(a.self.real() != nullptr); }},
      {"ge", [](const Arguments& a) { return ordered(a, [](int c) { return c >= 0; }); }},
      {"gt", [](const Arguments& a) { return ordered(a, [](int c) { return c > 0; }); }},
      {"in",
       [](const Arguments& a) {
         const Value* all = a.at(0, "seq");
         if (!all) throw Failure{"needs a list"};
         return Value(contains(*all, a.self));
       }},
      {"integer", [](const Arguments& a) { return Value(a.self.integer() != nullptr); }},
      {"iterable",
       [](const Arguments& a) {
         const bool object = a.self.dict() && !a.self.dict()->is_namespace;
         return Value(a.self.undefined() || a.self.text() || a.self.list() || object);
       }},
      {"le", [](const Arguments& a) { return ordered(a, [](int c) { return c <= 0; }); }},
      {"lower",
       [](const Arguments& a) {
         const Text t = to_text(a.self);
         return Value(equal(lower(t), t) && !equal(upper(t), t));
       }},
      {"lt", [](const Arguments& a) { return ordered(a, [](int c) { return c < 0; }); }},
      {"mapping", [](const Arguments& a) { return Value(a.self.dict() && !a.self.dict()->is_namespace); }},
      {"ne", [](const Arguments& a) { return Value(!equals_argument(a)); }},
      {"none", [](const Arguments& a) { return Value(a.self.is_none()); }},
      {"number", [](const Arguments& a) { return Value(a.self.number().has_value()); }},
      {"odd", [](const Arguments& a) { return Value(remainder_of(a, 2) == 1); }},
      {"sameas",
       [](const Arguments& a) {
         const Value* other = a.at(0, "other");
         return Value(other && a.self.same_object(*other));
       }},
      {"sequence",
       [](const Arguments& a) {
         const bool list =
             a.self.list() && a.self.list()->kind != List::Kind::kGenerator && a.self.list()->kind != List::Kind::kView;
         return Value(a.self.undefined() || a.self.text() || list || (a.self.dict() && !a.self.dict()->is_namespace));
       }},
      {"string", [](const Arguments& a) { return Value(a.self.text() != nullptr); }},
      {"true", [](const Arguments& a) { return Value(a.self.boolean() && *a.self.boolean()); }},
      {"undefined", [](const Arguments& a) { return Value(a.self.undefined() != nullptr); }},
      {"upper", [](const Arguments& a) {
         const Text t = to_text(a.self);
         return Value(equal(upper(t), t) && !equal(lower(t), t));
       }}};
  return all;
}

template <class Map>
Builtin found_in(const Map& map, std::string_view name) {
  const auto found = map.find(name);
  return found == map.end() ? nullptr : found->second;
}

}  // namespace

Text sum_of(const Text& a, const Text& b) {
  const bool markup = a.markup || b.markup;
  Text out = markup ? with_escapes(a) : a;
  out += markup ? with_escapes(b) : b;
  out.markup = markup;
  return out;
}

Text percent_formatted(const Text& text, const std::vector<Value>& values) {
  Text out;
  size_t next = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t sign = std::min(text.bytes.find('%', at), text.size());
    out += text.part(at, sign);
    if (sign == text.size()) break;
    const char how = sign + 1 < text.size() ? text.bytes[sign + 1] : '\0';
    at = sign + 2;
    if (how == '%') {
      out += "%";
      continue;
    }
    if (next == values.size()) throw Failure{"there are fewer values than places for them"};
    const Value& value = values[next++];
    if (how == 's') out += to_text(value);
    else if (how == 'r') out += repr(value);
    else if ((how == 'd' || how == 'i') && value.whole()) out += std::to_string(*value.whole());
    else
      throw Failure{
          str("%", std::string(1, how), " of a ", type_name(value), " is not supported: there are %s, %r and %d")};
  }
  if (next < values.size()) throw Failure{"there are more values than places for them"};
  return out;
}

Builtin filter_named(std::string_view name) {
  if (name == "d") name = "default";
  if (name == "e") name = "escape";
  return found_in(filters(), name);
}

Builtin test_named(std::string_view name) {
  constexpr std::pair<std::string_view, std::string_view> kOthers[] = {
      {"==", "eq"}, {"equalto", "eq"}, {"!=", "ne"},          {"<", "lt"}, {"lessthan", "lt"},
      {"<=", "le"}, {">", "gt"},       {"greaterthan", "gt"}, {">=", "ge"}};
  for (const auto& [other, usual] : kOthers)
    if (name == other) name = usual;
  return found_in(tests(), name);
}

Value method_of(const Value& v, const std::string& name) {
  const auto none = [&] { return Value::undefined("no method"); };
  Method found = nullptr;
  bool changes = false;
  if (v.text()) {
    found = found_in(text_methods(), name);
  } else if (v.dict() && !v.dict()->is_namespace) {
    found = found_in(dict_methods(), name);
    changes = is_among(kDictChanges, name);
  } else if (v.list() && v.list()->kind <= List::Kind::kTuple) {
    found = found_in(list_methods(), name);
    changes = v.list()->kind == List::Kind::kList && is_among(kListChanges, name);
  }
  if (changes)
    return Value::undefined(str("the method '", name, "' changes a ", type_name(v), ", which no template may do"),
                            true);
  if (!found) return none();
  return Function{name, [v, found](const Arguments& given) {
                    Arguments own = given;
                    own.self = v;
                    return found(own);
                  }};
}

}  // namespace lockstep::jinja
