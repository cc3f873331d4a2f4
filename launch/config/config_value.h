// The value of one field: reading and checking it from a node of the configuration, and writing it as canonical YAML.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/field.h"
#include "core/io/json.h"
#include "launch/config/config_tree.h"

namespace lockstep {

// Sets the field's target. Throws ExitCode::kConfig with the location, the full key, the expected and the actual value.
void read_value(Field& field, const ConfigNode& node, const std::string& full_key);

// One line of YAML that reads back as the same value: shortest numbers, texts quoted only if needed. `math_only` leaves
// out settings in list elements that do not affect results.
std::string value_text(const Field& field, bool math_only = false);

// The same value as JSON: texts, numbers, lists, sections as objects.
JsonValue json_value(const Field& field);

// The elements of a list of sections, each in the form of value_text.
std::vector<std::string> element_texts(const Field& field, bool math_only = false);

std::string type_text(const Field& field);   // "integer", "list of numbers", "text", ...
std::string range_text(const Field& field);  // "a | b", "0 to 1", ">= 1", ""
std::string quoted_if_needed(std::string_view text);

}  // namespace lockstep
