#include "core/io/json.h"

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/base/error.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// Depth is limited before the parser's own tree is built: its destructor recurses.
Json parse(std::string_view text) {
  constexpr int kMaxDepth = 32;
  bool too_deep = false;
  auto json = Json::parse(
      text,
      [&](int depth, Json::parse_event_t, Json&) {
        too_deep = too_deep || depth > kMaxDepth;
        return !too_deep;
      },
      false);
  return too_deep ? Json(Json::value_t::discarded) : json;
}

Json to_json(const JsonValue& value) {
  return std::visit(
      [](const auto& v) {
        using Value = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<Value, double>) {
          return std::isfinite(v) ? Json(v) : Json(nullptr);
        } else if constexpr (std::is_same_v<Value, JsonText>) {
          Json json = Json::parse(v.text, nullptr, false);
          check(!json.is_discarded(), "no JSON: ", v.text);
          return json;
        } else {
          return Json(v);
        }
      },
      value);
}

}  // namespace

std::string json_line(const JsonObject& object) {
  Json json = Json::object();
  for (const auto& [key, value] : object) json[key] = to_json(value);
  return to_line(json);
}

JsonText json_array(const std::vector<JsonValue>& values) {
  Json json = Json::array();
  for (const JsonValue& v : values) json.push_back(to_json(v));
  return {to_line(json)};
}

JsonText json_array(const std::vector<JsonObject>& objects) { return {json_list(objects)}; }

std::string json_list(const std::vector<JsonObject>& objects) {
  std::string out = "[";
  for (size_t i = 0; i < objects.size(); ++i) out += (i ? ",\n " : "\n ") + json_line(objects[i]);
  return out + "\n]\n";
}

namespace {

bool beyond_int64(const Json& value) {
  return value.is_number_unsigned() &&
         value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
}

JsonObject flat_object(const Json& json) {
  JsonObject out;
  for (const auto& [key, value] : json.items()) {
    JsonValue v = nullptr;
    if (value.is_boolean()) v = value.get<bool>();
    else if (value.is_number_integer() && !beyond_int64(value)) v = value.get<int64_t>();
    else if (value.is_number()) v = value.get<double>();
    else if (value.is_string()) v = value.get<std::string>();
    else if (!value.is_null()) v = to_line(value);
    out.emplace_back(key, std::move(v));
  }
  return out;
}

const JsonValue* find(const JsonObject& object, std::string_view key) {
  for (const auto& [name, value] : object)
    if (name == key) return &value;
  return nullptr;
}

}  // namespace

std::optional<JsonObject> parse_json_object(std::string_view text) {
  Json json = parse(text);
  if (!json.is_object()) return std::nullopt;
  return flat_object(json);
}

std::optional<std::vector<JsonObject>> parse_json_list(std::string_view text) {
  Json json = parse(text);
  if (!json.is_array()) return std::nullopt;
  std::vector<JsonObject> out;
  for (const auto& element : json) {
    if (!element.is_object()) return std::nullopt;
    out.push_back(flat_object(element));
  }
  return out;
}

int64_t json_int(const JsonObject& object, std::string_view key, std::string_view where) {
  const JsonValue* v = find(object, key);
  const int64_t* number = v ? std::get_if<int64_t>(v) : nullptr;
  require(number != nullptr, ExitCode::kBadData, where, ": has no integer \"", key, "\"");
  return *number;
}

double json_number(const JsonObject& object, std::string_view key, std::string_view where) {
  const JsonValue* v = find(object, key);
  if (const int64_t* integer = v ? std::get_if<int64_t>(v) : nullptr) return static_cast<double>(*integer);
  const double* number = v ? std::get_if<double>(v) : nullptr;
  require(number != nullptr, ExitCode::kBadData, where, ": has no number \"", key, "\"");
  return *number;
}

const std::string& json_text(const JsonObject& object, std::string_view key, std::string_view where) {
  const JsonValue* v = find(object, key);
  const std::string* text = v ? std::get_if<std::string>(v) : nullptr;
  require(text != nullptr, ExitCode::kBadData, where, ": has no text \"", key, "\"");
  return *text;
}

std::optional<int64_t> json_integer(std::string_view text, std::string_view key) {
  Json json = parse(text);
  if (!json.is_object()) return std::nullopt;
  auto found = json.find(std::string(key));
  if (found == json.end() || !found->is_number_integer() || beyond_int64(*found)) return std::nullopt;
  return found->get<int64_t>();
}

}  // namespace lockstep
