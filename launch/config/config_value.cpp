#include "launch/config/config_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <set>

#include "core/base/error.h"
#include "launch/config/did_you_mean.h"

namespace lockstep {
namespace {

using Kind = ConfigNode::Kind;

template <class... T>
struct Cases : T... {
  using T::operator()...;
};
template <class... T>
Cases(T...) -> Cases<T...>;

std::string found_text(const ConfigNode& node) {
  switch (node.kind) {
    case Kind::kNull: return "nothing";
    case Kind::kList: return "a list";
    case Kind::kMap: return "a section with keys below it";
    case Kind::kScalar: break;
  }
  std::string shown = node.scalar.substr(0, 60);
  for (char& c : shown)
    if (c == '\n') c = ' ';
  if (node.scalar.size() > 60) shown += "...";
  return node.quoted ? "the text \"" + shown + "\"" : shown.empty() ? "an empty text" : "'" + shown + "'";
}

struct ConfigPlace {
  const ConfigNode& node;
  const std::string& key;

  template <class... Parts>
  [[noreturn]] void fail(const Parts&... parts) const {
    throw Error(ExitCode::kConfig, str(node.where(), ": ", key, ": ", parts...));
  }
  [[noreturn]] void expected(std::string_view type, std::string_view hint = "") const {
    fail("expected ", type, ", found ", found_text(node), hint);
  }
};

std::string_view without_plus(std::string_view s) {
  return s.size() > 1 && s[0] == '+' && s[1] != '-' ? s.substr(1) : s;
}

template <class T>
bool parses(std::string_view text, T& value) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

void check_range(const Field& f, const ConfigPlace& at, double v, const std::string& shown) {
  if (v < f.min || v > f.max)
    at.fail(shown, f.unit.empty() ? "" : " ", f.unit, " is out of range: allowed is ", range_text(f));
}

int64_t to_integer(const Field& f, const ConfigPlace& at) {
  const auto& node = at.node;
  if (node.kind != Kind::kScalar || node.quoted) at.expected("an integer");
  std::string_view text = without_plus(node.scalar);
  int64_t value = 0;
  if (!parses(text, value)) {
    double d = 0;  // accepts integers such as 1e6
    bool exponent = text.find_first_of("eE") != std::string_view::npos;
    if (text.find_first_not_of("0123456789-") == std::string_view::npos && !text.empty() &&
        text.find_last_of('-') + 1 <= 1 && text != "-")
      at.fail("the integer ", found_text(node), " does not fit 64 bits");
    if (!exponent || !parses(text, d) || d != std::floor(d) || std::abs(d) > 9e15) at.expected("an integer");
    value = static_cast<int64_t>(d);
  }
  check_range(f, at, static_cast<double>(value), node.scalar);
  return value;
}

double to_number(const Field& f, const ConfigPlace& at) {
  const auto& node = at.node;
  if (node.kind != Kind::kScalar || node.quoted) at.expected("a number");
  std::string_view text = without_plus(node.scalar);
  double value = 0;
  if (text == ".inf" || text == "-.inf") {
    value = text[0] == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  } else {
    auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (end != text.data() + text.size() || error == std::errc::invalid_argument) at.expected("a number");
    if (error != std::errc()) at.fail("the number ", found_text(node), " does not fit fp64");
    if (!std::isfinite(value)) at.expected("a number", "; infinity is written .inf");
  }
  check_range(f, at, value, node.scalar);
  return value;
}

bool to_bool(const ConfigPlace& at) {
  const auto& node = at.node;
  if (node.kind == Kind::kScalar && !node.quoted) {
    if (node.scalar == "true") return true;
    if (node.scalar == "false") return false;
  }
  at.expected("true or false");
}

std::string to_string(const Field& f, const ConfigPlace& at) {
  const auto& node = at.node;
  if (node.kind == Kind::kNull) at.expected(f.choices.empty() ? "a text" : type_text(f), "; an empty text is \"\"");
  if (node.kind != Kind::kScalar) at.expected(f.choices.empty() ? "a text" : type_text(f));
  if (!f.choices.empty() && std::find(f.choices.begin(), f.choices.end(), node.scalar) == f.choices.end())
    at.fail(found_text(node), " is not a choice here: ", range_text(f), did_you_mean(node.scalar, f.choices));
  return node.scalar;
}

template <class T, class Convert>
void read_list(std::vector<T>& list, const Field& f, const ConfigPlace& at, Convert convert) {
  if (at.node.kind != Kind::kList) at.expected("a " + type_text(f), "; write [value, value]");
  std::vector<T> values;
  for (size_t i = 0; i < at.node.children.size(); ++i) {
    std::string key = str(at.key, "[", i, "]");
    values.push_back(convert(ConfigPlace{at.node.children[i], key}));
  }
  list = std::move(values);
}

// The node at a dotted key below `node`; null if there is none.
const ConfigNode* below(const ConfigNode& node, std::string_view key) {
  const ConfigNode* at = &node;
  for (size_t from = 0; at && from <= key.size();) {
    size_t dot = std::min(key.find('.', from), key.size());
    at = at->find(key.substr(from, dot - from));
    from = dot + 1;
  }
  return at;
}

void refuse_unknown(const ConfigNode& node, const std::string& prefix, const std::vector<std::string>& keys,
                    const std::string& full_key) {
  for (const auto& child : node.children) {
    std::string key = prefix.empty() ? child.key : prefix + "." + child.key;
    if (std::find(keys.begin(), keys.end(), key) != keys.end()) continue;
    bool section = std::any_of(keys.begin(), keys.end(), [&](auto& k) { return k.starts_with(key + "."); });
    if (section && child.kind == Kind::kMap) {
      refuse_unknown(child, key, keys, full_key);
      continue;
    }
    throw Error(ExitCode::kConfig,
                str(child.where(), ": ", full_key, ": unknown key ", key.substr(0, 120), did_you_mean(key, keys)));
  }
}

void read_sections(ListRef& list, const Field& f, const ConfigPlace& at) {
  if (at.node.kind != Kind::kList) at.expected("a " + type_text(f), "; begin each with a dash");
  list.clear();
  for (size_t i = 0; i < at.node.children.size(); ++i) {
    const ConfigNode& element = at.node.children[i];
    std::string key = str(at.key, "[", i, "]");
    if (element.kind != Kind::kMap) ConfigPlace{element, key}.expected("a section (key: value)");
    std::vector<Field> fields = list.append();
    std::vector<std::string> keys;
    for (auto& inner : fields) {
      keys.push_back(inner.key);
      if (const ConfigNode* node = below(element, inner.key)) read_value(inner, *node, key + "." + inner.key);
    }
    refuse_unknown(element, "", keys, key);
  }
}

std::string number_text(double v) {
  if (std::isinf(v)) return v > 0 ? ".inf" : "-.inf";
  return to_text(v);
}

template <class List, class Convert>
std::string list_text(const List& list, Convert convert) {
  std::string out = "[";
  for (size_t i = 0; i < list.size(); ++i) {
    if (i) out += ", ";
    out += convert(list[i]);
  }
  return out + "]";
}

}  // namespace

void read_value(Field& field, const ConfigNode& node, const std::string& full_key) {
  ConfigPlace at{node, full_key};
  if (field.given) *field.given = true;
  std::visit(Cases{
                 [&](bool* p) { *p = to_bool(at); },
                 [&](int64_t* p) { *p = to_integer(field, at); },
                 [&](double* p) { *p = to_number(field, at); },
                 [&](std::string* p) { *p = to_string(field, at); },
                 [&](std::vector<int64_t>* p) {
                   read_list(*p, field, at, [&](const ConfigPlace& e) { return to_integer(field, e); });
                 },
                 [&](std::vector<double>* p) {
                   read_list(*p, field, at, [&](const ConfigPlace& e) { return to_number(field, e); });
                 },
                 [&](std::vector<std::string>* p) {
                   read_list(*p, field, at, [&](const ConfigPlace& e) { return to_string(field, e); });
                 },
                 [&](EnumRef& e) { e.set(to_string(field, at)); },
                 [&](ListRef& list) { read_sections(list, field, at); },
             },
             field.target);
}

std::vector<std::string> element_texts(const Field& field, bool math_only) {
  std::vector<std::string> out;
  const auto* list = std::get_if<ListRef>(&field.target);
  check(list != nullptr, "element_texts of ", field.key, ", which is not a list of sections");
  for (const auto& fields : list->elements()) {
    std::string text;
    for (const auto& f : fields)
      if (math_only ? f.shapes_math : !f.given || *f.given)
        text += (text.empty() ? "" : ", ") + f.key + ": " + value_text(f, math_only);
    out.push_back("{" + text + "}");
  }
  return out;
}

std::string value_text(const Field& field, bool math_only) {
  auto integer = [](int64_t v) { return to_text(v); };
  auto text = [](const std::string& v) { return quoted_if_needed(v); };
  return std::visit(Cases{
                        [](bool* p) { return std::string(to_text(*p)); },
                        [&](int64_t* p) { return integer(*p); },
                        [](double* p) { return number_text(*p); },
                        [&](std::string* p) { return text(*p); },
                        [&](std::vector<int64_t>* p) { return list_text(*p, integer); },
                        [](std::vector<double>* p) { return list_text(*p, number_text); },
                        [&](std::vector<std::string>* p) { return list_text(*p, text); },
                        [&](const EnumRef& e) { return text(e.get()); },
                        [&](const ListRef&) {
                          return list_text(element_texts(field, math_only), [](const std::string& s) { return s; });
                        },
                    },
                    field.target);
}

JsonValue json_value(const Field& field) {
  const auto list = [](const auto& values) -> JsonValue {
    return json_array(std::vector<JsonValue>(values.begin(), values.end()));
  };
  return std::visit(
      Cases{[](auto* p) -> JsonValue { return *p; }, [&](std::vector<int64_t>* p) { return list(*p); },
            [&](std::vector<double>* p) { return list(*p); }, [&](std::vector<std::string>* p) { return list(*p); },
            [](const EnumRef& e) -> JsonValue { return e.get(); },
            [](const ListRef& sections) -> JsonValue {
              std::vector<JsonObject> all;
              for (const auto& fields : sections.elements()) {
                JsonObject& object = all.emplace_back();
                for (const Field& f : fields)
                  if (!f.given || *f.given) object.emplace_back(f.key, json_value(f));
              }
              return json_array(all);
            }},
      field.target);
}

std::string type_text(const Field& field) {
  std::string word = field.choices.empty() ? "text" : "choice";
  return std::visit(Cases{
                        [](bool*) { return std::string("true or false"); },
                        [](int64_t*) { return std::string("integer"); },
                        [](double*) { return std::string("number"); },
                        [&](std::string*) { return word; },
                        [](std::vector<int64_t>*) { return std::string("list of integers"); },
                        [](std::vector<double>*) { return std::string("list of numbers"); },
                        [&](std::vector<std::string>*) { return "list of " + word + "s"; },
                        [&](const EnumRef&) { return word; },
                        [](const ListRef&) { return std::string("list of sections"); },
                    },
                    field.target);
}

std::string range_text(const Field& field) {
  std::string out;
  for (const auto& c : field.choices) out += (out.empty() ? "" : " | ") + c;
  if (!out.empty()) return out;
  bool low = std::isfinite(field.min), high = std::isfinite(field.max);
  if (low && high) return str(field.min, " to ", field.max);
  if (low) return str(">= ", field.min);
  if (high) return str("<= ", field.max);
  return "";
}

std::string quoted_if_needed(std::string_view text) {
  auto letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  // Words that some YAML parsers do not read as text.
  static const std::set<std::string, std::less<>> kReserved = {"true", "false", "null", "yes", "no", "on",
                                                               "off",  "y",     "n",    "inf", "nan"};
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  bool first = !text.empty() && (letter(text[0]) || text[0] == '_' || text[0] == '/');
  bool plain = first && !kReserved.contains(lower) && std::all_of(text.begin(), text.end(), [&](char c) {
                 return letter(c) || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '/' || c == '.';
               });
  if (plain) return std::string(text);
  std::string out = "\"";
  for (char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      constexpr std::string_view kDigits = "0123456789abcdef";
      out += {'\\', 'x', kDigits[static_cast<unsigned char>(c) >> 4], kDigits[c & 15]};
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace lockstep
