#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/text/jinja/numbers.h"
#include "data/text/jinja/value.h"

namespace lockstep::jinja {
namespace {

void add_json_text(const Text& text, const JsonStyle& style, Text& out) {
  out += "\"";
  const std::vector<size_t> starts = character_starts(text.bytes);
  const auto escaped = [&](uint32_t unit) {
    constexpr const char* kDigits = "0123456789abcdef";
    std::string e = "\\u";
    for (int d = 3; d >= 0; --d) e += kDigits[unit >> (4 * d) & 15];
    return e;
  };
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const uint32_t c = character_at(text.bytes, starts[i]);
    std::string shown = text.bytes.substr(starts[i], starts[i + 1] - starts[i]);
    if (c == '"' || c == '\\') shown = std::string("\\") + static_cast<char>(c);
    else if (c == '\n') shown = "\\n";
    else if (c == '\r') shown = "\\r";
    else if (c == '\t') shown = "\\t";
    else if (c == '\b') shown = "\\b";
    else if (c == '\f') shown = "\\f";
    else if (c < 0x20) shown = escaped(c);
    else if (style.ascii && c > 0xFFFF) {
      shown = escaped(0xD800 + ((c - 0x10000) >> 10)) + escaped(0xDC00 + ((c - 0x10000) & 0x3FF));
    } else if (style.ascii && c > 0x7E) {
      shown = escaped(c);
    }
    out.add(shown, text, starts[i]);
  }
  out += "\"";
}

void add_json(const Value& v, const JsonStyle& style, const std::string& margin, Text& out) {
  Budget::spend(1);
  if (v.text()) return add_json_text(*v.text(), style, out);
  if (v.is_none()) {
    out += "null";
  } else if (v.boolean()) {
    out += *v.boolean() ? "true" : "false";
  } else if (v.integer()) {
    out += to_text(v);
  } else if (const double* d = v.real()) {
    out += std::isnan(*d) ? "NaN" : std::isinf(*d) ? (*d < 0 ? "-Infinity" : "Infinity") : number_text(*d);
  } else if ((v.dict() && !v.dict()->is_namespace) || (v.list() && v.list()->kind <= List::Kind::kTuple)) {
    const bool object = v.dict() != nullptr;
    const size_t count = object ? v.dict()->members.size() : v.list()->items.size();
    out += object ? "{" : "[";
    const std::string inner = style.indent ? margin + *style.indent : margin;
    std::vector<size_t> order(count);
    for (size_t i = 0; i < count; ++i) order[i] = i;
    if (object && style.sorted)
      std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return compare(v.dict()->members[a].first, v.dict()->members[b].first) < 0;
      });
    for (size_t i = 0; i < count; ++i) {
      if (i > 0) out += style.comma;
      if (style.indent) out += "\n" + inner;
      if (object) {
        // Keys that are numbers, truths or none are written as texts of their JSON.
        const Value& key = v.dict()->members[order[i]].first;
        if (key.text()) add_json_text(*key.text(), style, out);
        else out += "\"", add_json(key, style, "", out), out += "\"";
        out += style.colon;
      }
      add_json(object ? v.dict()->members[order[i]].second : v.list()->items[i], style, inner, out);
    }
    if (style.indent && count > 0) out += "\n" + margin;
    out += object ? "}" : "]";
  } else {
    throw Failure{str("a ", type_name(v), " is no JSON")};
  }
}

}  // namespace

Text to_json(const Value& value, const JsonStyle& style) {
  Text out;
  add_json(value, style, "", out);
  return out;
}

Value of_json(const JsonValue& json, char16_t origin) {
  if (std::holds_alternative<std::nullptr_t>(json)) return nullptr;
  if (const auto* b = std::get_if<bool>(&json)) return *b;
  if (const auto* i = std::get_if<int64_t>(&json)) return *i;
  if (const auto* d = std::get_if<double>(&json)) return *d;
  if (const auto* s = std::get_if<std::string>(&json)) return Text(*s, origin);
  const std::string& text = std::get<JsonText>(json).text;
  if (const auto items = parse_json_array(text)) {
    List out;
    for (const JsonValue& item : *items) out.items.push_back(of_json(item, origin));
    return out;
  }
  const auto object = parse_json_object(text);
  require(object.has_value(), ExitCode::kBadData, "holds an object that has a key twice: ", text.substr(0, 60));
  auto out = std::make_shared<Dict>();
  for (const auto& [key, value] : *object) {
    out->members.emplace_back(Text(key, origin), of_json(value, origin));
    out->depth = std::max(out->depth, depth_of(out->members.back().second));
  }
  return out;
}

}  // namespace lockstep::jinja
