// Flat JSON objects: written as one line, always valid; read back. The door to nlohmann_json.
// Plain values.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace lockstep {

// JSON that stands as it is: a list or an object.
struct JsonText {
  std::string text;
  friend bool operator==(const JsonText&, const JsonText&) = default;
};
// Nothing, a truth, a number, a text, or more JSON. Non-finite numbers are written as null.
using JsonValue = std::variant<std::nullptr_t, bool, int64_t, double, std::string, JsonText>;
using JsonObject = std::vector<std::pair<std::string, JsonValue>>;  // in the order written

JsonText json_array(const std::vector<JsonValue>& values);
JsonText json_array(const std::vector<JsonObject>& objects);
std::string json_line(
    const JsonObject& object);  // {"step":3,"loss":1.5}, no newline; bytes that are no UTF-8 become U+FFFD
std::string json_list(const std::vector<JsonObject>& objects);  // a list, one object a line

std::string json_text_of(const JsonValue& value);  // one value: "text", 1.5; bytes as above

// Nothing where the text is no JSON object, has the same key twice or is nested deeper than 32 levels. Values that are
// lists or objects come as JsonText.
std::optional<JsonObject> parse_json_object(std::string_view text);
// The elements of a list, those that are lists or objects as JsonText; nothing where the text is none or is nested
// deeper than 32 levels.
std::optional<std::vector<JsonValue>> parse_json_array(std::string_view text);

// Hands on each object of a list of objects as it is read; false where the text is none. Time grows linearly with the
// text, and one object is held at a time.
bool visit_json_list(std::string_view text, const std::function<void(JsonObject&&)>& use);

// A member of an object; throws ExitCode::kBadData naming `where` and the key where it is absent or of another kind.
// json_text(), as text_of() below, also gives the text of a list or an object.
int64_t json_int(const JsonObject& object, std::string_view key, std::string_view where);
double json_number(const JsonObject& object, std::string_view key, std::string_view where);  // an integer is one, too
// Nothing where it is absent or no truth.
std::optional<bool> json_bool(const JsonObject& object, std::string_view key);
const std::string& json_text(const JsonObject& object, std::string_view key, std::string_view where);

// The text in a field of a record; throws ExitCode::kBadData for a message that begins with the record.
const std::string& text_field(const JsonObject& object, const std::string& name);

// A member, or null.
const JsonValue* find_member(const JsonObject& object, std::string_view key);
// Members of an object that may be of another version: "" and `standard` where one is absent or of another kind.
std::string text_of(const JsonObject& object, std::string_view key);
int64_t integer_of(const JsonObject& object, std::string_view key, int64_t standard = 0);
double number_of(const JsonObject& object, std::string_view key, double standard = 0);  // an integer is one, too

// A number, also an integer; null, as which what is not finite is written, is NaN. Nothing for other values.
std::optional<double> as_number(const JsonValue& value);

// The integer under `key`; nothing where the text is no JSON object or has none there.
std::optional<int64_t> json_integer(std::string_view text, std::string_view key);

}  // namespace lockstep
