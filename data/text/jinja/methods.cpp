// The methods of texts, lists and objects that chat templates use, as Python has them.
#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "data/text/jinja/texts.h"

namespace lockstep::jinja {
namespace {

Value split(const Arguments& a, bool from_right) {
  const Text& text = *a.self.text();
  const Value* separator = a.at(0, "sep");
  const int64_t most = integer_at(a, 1, "maxsplit", -1);
  List out;
  const auto add = [&](Text part) {
    Budget::spend(kStepsOfPart);
    Budget::spend_bytes(part.size());
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
        Budget::spend_bytes(end - (found == std::string::npos ? 0 : found));
        if (found == std::string::npos) break;
        Budget::spend(kStepsOfPart);
        parts.emplace_back(text.part(found + by.size(), end));
        end = found;
      }
      Budget::spend_bytes(end);
      parts.emplace_back(text.part(0, end));
      out.items.assign(parts.rbegin(), parts.rend());
      return out;
    }
    size_t at = 0;
    for (int64_t n = 0; n != most; ++n) {
      const size_t found = find_text(text.bytes, by.bytes, at);
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

// Whether a text begins, or ends, with another one or one of several.
Value affix(const Arguments& a, bool begins) {
  const Value* with = a.at(0, "prefix");
  const auto is = [&](const Value& v) {
    if (!v.text()) throw Failure{str("needs a text, not a ", type_name(v))};
    const std::string &whole = a.self.text()->bytes, &part = v.text()->bytes;
    if (part.size() <= whole.size()) Budget::spend_bytes(part.size());
    return begins ? whole.starts_with(part) : whole.ends_with(part);
  };
  if (!with || a.positional.size() > 1) throw Failure{"needs one text"};
  if (!with->list()) return is(*with);
  return std::any_of(with->list()->items.begin(), with->list()->items.end(), is);
}

Value find(const Arguments& a, bool last) {
  const std::string &whole = a.self.text()->bytes, &part = text_at(a, 0, "sub").bytes;
  const size_t found = find_text(whole, part, 0, last);
  if (found == std::string::npos) return int64_t{-1};
  return static_cast<int64_t>(character_starts(whole.substr(0, found)).size()) - 1;
}

Value count(const Arguments& a) {
  const std::string &whole = a.self.text()->bytes, &part = text_at(a, 0, "sub").bytes;
  if (part.empty()) return static_cast<int64_t>(character_starts(whole).size());
  int64_t n = 0;
  for (size_t at = find_text(whole, part, 0); at != std::string::npos; at = find_text(whole, part, at + part.size()))
    ++n;
  return n;
}

template <class Is>
Value all_are(const Arguments& a, Is is) {
  const std::string& text = a.self.text()->bytes;
  const std::vector<size_t> starts = character_starts(text);
  for (size_t i = 0; i + 1 < starts.size(); ++i)
    if (!is(character_at(text, starts[i]))) return false;
  return !text.empty();
}

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
      {"isdecimal", [](const Arguments& a) { return all_are(a, [](uint32_t c) { return decimal_of(c) >= 0; }); }},
      {"isnumeric", [](const Arguments& a) { return all_are(a, is_numeric); }},
      {"isalpha", [](const Arguments& a) { return all_are(a, is_alpha); }},
      {"isalnum", [](const Arguments& a) { return all_are(a, is_alphanumeric); }},
      {"isspace", [](const Arguments& a) { return all_are(a, is_python_space); }},
      {"isupper", [](const Arguments& a) { return Value(is_upper(*a.self.text())); }},
      {"islower", [](const Arguments& a) { return Value(is_lower(*a.self.text())); }},
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

template <class Map>
Method method_in(const Map& map, std::string_view name) {
  const auto found = map.find(name);
  return found == map.end() ? nullptr : found->second;
}

}  // namespace

Value method_of(const Value& v, const std::string& name) {
  Method found = nullptr;
  bool changes = false;
  if (v.text()) {
    found = method_in(text_methods(), name);
  } else if (v.dict() && !v.dict()->is_namespace) {
    found = method_in(dict_methods(), name);
    changes = is_among(kDictChanges, name);
  } else if (v.list() && v.list()->kind <= List::Kind::kTuple) {
    found = method_in(list_methods(), name);
    changes = v.list()->kind == List::Kind::kList && is_among(kListChanges, name);
  }
  if (changes)
    return Value::undefined(str("the method '", name, "' changes a ", type_name(v), ", which no template may do"),
                            true);
  if (!found) return Value::undefined("no method");
  return Function{name, [v, found](const Arguments& given) {
                    Arguments own = given;
                    own.self = v;
                    return found(own);
                  }};
}

}  // namespace lockstep::jinja
