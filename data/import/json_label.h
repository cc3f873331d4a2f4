// The field of a JSON object that is a label. A plain function.
#pragma once

#include <cmath>
#include <string>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/samples/label_index.h"

namespace lockstep {

// A label: a text, an integer, perhaps written as 1.0, or a truth value. Throws ExitCode::kBadData.
inline std::string label_field(const JsonObject& object, const std::string& name) {
  const JsonValue* value = find_member(object, name);
  require(value != nullptr, ExitCode::kBadData, "has no field \"", name, "\"");
  if (const auto* number = std::get_if<int64_t>(value)) return str(*number);
  if (const auto* number = std::get_if<double>(value);
      number && *number == std::floor(*number) && std::abs(*number) < 0x1p53)
    return str(static_cast<int64_t>(*number));
  if (const auto* truth = std::get_if<bool>(value)) return *truth ? "true" : "false";
  const auto* text = std::get_if<std::string>(value);
  const std::string label(text ? label_text(*text) : "");
  require(!label.empty() && label.find('\n') == label.npos, ExitCode::kBadData, "its field \"", name,
          "\" is no label: a text of one line, an integer, true or false");
  return label;
}

}  // namespace lockstep
