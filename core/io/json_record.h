// Records of data as JSON objects, whose integers may be ids of any length.
#pragma once

#include <optional>
#include <string_view>

#include "core/io/json.h"

namespace lockstep {

// As parse_json_object(), but an integer that 64 bits do not hold comes as JsonText, with all its digits.
std::optional<JsonObject> parse_json_record(std::string_view text);
// Whether a value is a number of either form.
bool is_json_number(const JsonValue& value);

}  // namespace lockstep
