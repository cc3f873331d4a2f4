// The filters and tests that chat templates use, as Jinja 3.1 has them.
#include <algorithm>
#include <limits>
#include <map>

#include "core/base/error.h"
#include "data/text/jinja/numbers.h"
#include "data/text/jinja/texts.h"
#include "data/text/vocabulary.h"

namespace lockstep::jinja {
namespace {

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
    const bool number =
        !name.empty() && std::all_of(name.begin(), name.end(), [](char c) { return c >= '0' && c <= '9'; });
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
      if (__builtin_add_overflow(whole, *w, &whole)) refuse_large_integer();
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
      {"abs", absolute},
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
           const bool is = c == '_' || is_alphanumeric(c);
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
      {"lower", [](const Arguments& a) { return Value(is_lower(to_text(a.self))); }},
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
      {"upper", [](const Arguments& a) { return Value(is_upper(to_text(a.self))); }}};
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

}  // namespace lockstep::jinja
