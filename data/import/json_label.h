// The field of a JSON object that is a label.
#pragma once

#include <cmath>
#include <string>

#include "core/base/error.h"
#include "core/io/json_record.h"
#include "data/samples/label_index.h"

namespace lockstep {

// A label of an object of parse_json_record(): a text, an integer of any length, perhaps written as 1.0, or a truth
// value. Throws ExitCode::kBadData.
inline std::string label_field(const JsonObject& object, const std::string& name) {
  const JsonValue* value = find_member(object, name);
  require(value != nullptr, ExitCode::kBadData, "has no field \"", name, "\"");
  if (const auto* number = std::get_if<int64_t>(value)) return str(*number);
  if (const auto* number = std::get_if<double>(value);
      number && *number == std::floor(*number) && std::abs(*number) < 0x1p53)
    return str(static_cast<int64_t>(*number));
  if (is_json_number(*value) && std::holds_alternative<JsonText>(*value)) return std::get<JsonText>(*value).text;
  if (const auto* truth = std::get_if<bool>(value)) return *truth ? "true" : "false";
  const auto* text = std::get_if<std::string>(value);
  const std::string label(text ? label_text(*text) : "");
  require(!label.empty() && label.find('\n') == label.npos, ExitCode::kBadData, "its field \"", name,
          "\" is no label: a text of one line, an integer, true or false");
  return label;
}

}  // namespace lockstep
