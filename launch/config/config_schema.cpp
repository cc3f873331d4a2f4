// The JSON Schema of the configuration, for editors.
#include <algorithm>
#include <cmath>

#include "core/io/json.h"
#include "launch/config/config.h"

namespace lockstep {
namespace {

JsonText json_of(const JsonObject& object) { return {json_line(object)}; }

JsonValue number(double v) {
  constexpr double kWhole = 9e15;  // below this each whole number is exact
  if (v == std::floor(v) && std::abs(v) <= kWhole) return static_cast<int64_t>(v);
  return v;
}

void add_range(JsonObject& to, const ConfigKey& k) {
  if (std::isfinite(k.min)) to.emplace_back("minimum", number(k.min));
  if (std::isfinite(k.max)) to.emplace_back("maximum", number(k.max));
}

// One value of the key, or of its list.
JsonObject scalar(const ConfigKey& k) {
  JsonObject out;
  if (!k.choices.empty()) {
    std::vector<JsonValue> choices;
    for (const std::string& c : k.choices) {
      if (c == "true" || c == "false") choices.emplace_back(c == "true");  // as YAML reads it
      else choices.emplace_back(c);
    }
    out.emplace_back("enum", json_array(choices));
  } else if (k.type == "true or false") {
    out.emplace_back("type", "boolean");
  } else if (k.type.find("integer") != k.type.npos) {
    out.emplace_back("type", "integer");
    add_range(out, k);
  } else if (k.type.find("number") != k.type.npos) {
    out.emplace_back("type", "number");
    add_range(out, k);
  } else {  // a text need not be quoted: a directory may be called 2024
    out.emplace_back("type", json_array(std::vector<JsonValue>{"string", "number", "boolean"}));
  }
  return out;
}

JsonObject section(const std::vector<ConfigKey>& keys, const std::string& prefix);

JsonObject value_of(const ConfigKey& k, const std::vector<ConfigKey>& keys) {
  JsonObject out;
  if (k.type == "list of sections") {
    out = {{"type", "array"}, {"items", json_of(section(keys, k.key + "[]."))}};
  } else if (k.type.starts_with("list of ")) {
    out = {{"type", "array"}, {"items", json_of(scalar(k))}};
  } else {
    out = scalar(k);
  }
  std::string description = k.doc;
  if (!k.unit.empty()) description += " [" + k.unit + "]";
  if (!k.condition.empty()) description += "; " + k.condition;
  out.emplace_back("description", description);
  out.emplace_back("default", k.value);
  return out;
}

// The keys that begin with `prefix`, which is empty or ends in a dot.
JsonObject section(const std::vector<ConfigKey>& keys, const std::string& prefix) {
  std::vector<std::string> names;
  for (const ConfigKey& k : keys) {
    if (!k.key.starts_with(prefix)) continue;
    const std::string name = k.key.substr(prefix.size(), k.key.find_first_of(".[", prefix.size()) - prefix.size());
    if (std::find(names.begin(), names.end(), name) == names.end()) names.push_back(name);
  }
  JsonObject properties;
  for (const std::string& name : names) {
    std::vector<JsonObject> values;  // several where models have a key of this name in different ranges
    for (const ConfigKey& k : keys)
      if (k.key == prefix + name) values.push_back(value_of(k, keys));
    if (values.empty()) properties.emplace_back(name, json_of(section(keys, prefix + name + ".")));
    else if (values.size() == 1) properties.emplace_back(name, json_of(values[0]));
    else properties.emplace_back(name, json_of({{"anyOf", json_array(values)}}));
  }
  const std::vector<JsonValue> types{"object", "null"};  // a section may be empty
  return {{"type", prefix.empty() ? JsonValue("object") : JsonValue(json_array(types))},
          {"additionalProperties", false},
          {"properties", json_of(properties)}};
}

}  // namespace

std::string config_schema(const std::vector<ConfigKey>& keys) {
  JsonObject schema{{"$schema", "http://json-schema.org/draft-07/schema#"}, {"title", "Configuration of Lockstep"}};
  for (auto& member : section(keys, "")) schema.push_back(std::move(member));
  return json_line(schema) + "\n";
}

}  // namespace lockstep
