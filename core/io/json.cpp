#include "core/io/json.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_set>

#include "core/base/error.h"
#include "core/io/json_record.h"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

std::string to_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

// What the text is: an object, a list of objects, or a list of any values, which is read as an object without keys.
enum class Form { kObject, kObjects, kValues };

// Builds flat objects from the events of nlohmann's parser, which does not recurse: time and memory grow with the text
// alone, whatever it holds. Each object is handed on when it ends; a list's objects are never all held at once.
class FlatReader {
 public:
  FlatReader(Form form, const std::function<void(JsonObject&&)>& use, bool exact)
      : members_(form == Form::kObjects ? 2 : 1), form_(form), exact_(exact), use_(use) {}

  bool null() { return value(nullptr, "null"); }
  bool boolean(bool v) { return value(v, v ? "true" : "false"); }
  bool number_integer(int64_t v) { return value(v, std::to_string(v)); }
  bool number_unsigned(uint64_t v) {
    if (v > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      return large(static_cast<double>(v), std::to_string(v));
    return number_integer(static_cast<int64_t>(v));
  }
  bool number_float(double v, const std::string& text) { return large(v, text); }
  bool string(std::string& v) {
    if (depth_ > members_) return nested(to_line(Json(v)));
    return value(std::move(v), "");
  }
  bool binary(Json::binary_t&) { return false; }  // JSON has none
  bool key(std::string& name) {
    if (depth_ > members_) {
      nested(to_line(Json(name)) + ":");
      first_ = true;
      return true;
    }
    key_ = std::move(name);
    return names_.insert(key_).second;  // twice the same key: which of them counts is anybody's guess
  }
  bool start_object(size_t) { return start('{'); }
  bool end_object() { return end('}'); }
  bool start_array(size_t) { return start('['); }
  bool end_array() { return end(']'); }
  bool parse_error(size_t, const std::string&, const Json::exception&) { return false; }

 private:
  static constexpr int kMaxDepth = 32;

  bool start(char bracket) {
    if (depth_ < members_) {
      const bool list = form_ == Form::kValues || (form_ == Form::kObjects && depth_ == 0);
      if (bracket != (list ? '[' : '{')) return false;
      object_.clear();
      names_.clear();
    } else {
      if (depth_ == members_) text_.clear(), first_ = true;
      nested(std::string_view(&bracket, 1));
      first_ = true;
    }
    return ++depth_ <= kMaxDepth;
  }
  bool end(char bracket) {
    --depth_;
    if (depth_ < members_) {
      if (bracket == (form_ == Form::kValues ? ']' : '}')) use_(std::move(object_));
      return true;
    }
    text_ += bracket;
    first_ = false;
    if (depth_ == members_) object_.emplace_back(std::move(key_), JsonText{std::move(text_)});
    return true;
  }
  // A number that is no integer of 64 bits.
  bool large(double v, const std::string& text) {
    const bool is_integer = text.find_first_of(".eE") == text.npos;
    return value(exact_ && is_integer ? JsonValue(JsonText{text}) : JsonValue(v), text);
  }
  bool value(JsonValue&& v, std::string_view text) {
    if (depth_ > members_) return nested(text);
    if (depth_ < members_) return false;  // in the list itself, or the whole text
    object_.emplace_back(std::move(key_), std::move(v));
    return true;
  }
  // A piece of a member that is a list or an object, which is kept as text.
  bool nested(std::string_view piece) {
    if (!first_) text_ += ',';
    text_ += piece;
    first_ = false;
    return true;
  }

  const int members_;  // depth at which an object's members lie
  const Form form_;
  const bool exact_;  // parse_json_record()
  const std::function<void(JsonObject&&)>& use_;
  int depth_ = 0;
  JsonObject object_;
  std::unordered_set<std::string> names_;
  std::string key_, text_;
  bool first_ = true;  // no comma before the next piece
};

bool read_flat(std::string_view text, Form form, const std::function<void(JsonObject&&)>& use, bool exact = false) {
  FlatReader reader(form, use, exact);
  return Json::sax_parse(text, &reader);
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

// Whether it is an integer as parse_json_record() gives those that 64 bits do not hold, which Json does not, either.
bool is_long_integer(const JsonValue& value) {
  const auto* json = std::get_if<JsonText>(&value);
  return json && !json->text.empty() && json->text.find_first_not_of("-0123456789") == json->text.npos;
}

const std::string* text_in(const JsonValue& value) {
  const auto* nested = std::get_if<JsonText>(&value);
  return nested ? &nested->text : std::get_if<std::string>(&value);
}

}  // namespace

std::string json_line(const JsonObject& object) {
  if (std::any_of(object.begin(), object.end(), [](const auto& m) { return is_long_integer(m.second); })) {
    std::string out = "{";
    for (const auto& [key, value] : object)
      out += str(out.size() > 1 ? "," : "", to_line(Json(key)), ":", json_text_of(value));
    return out + "}";
  }
  Json json = Json::object();
  for (const auto& [key, value] : object) json[key] = to_json(value);
  return to_line(json);
}

std::string json_text_of(const JsonValue& value) {
  return is_long_integer(value) ? std::get<JsonText>(value).text : to_line(to_json(value));
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

const JsonValue* find_member(const JsonObject& object, std::string_view key) {
  for (const auto& [name, value] : object)
    if (name == key) return &value;
  return nullptr;
}

std::string text_of(const JsonObject& object, std::string_view key) {
  const JsonValue* v = find_member(object, key);
  const auto* text = v ? text_in(*v) : nullptr;
  return text ? *text : std::string();
}

int64_t integer_of(const JsonObject& object, std::string_view key, int64_t standard) {
  const JsonValue* v = find_member(object, key);
  const auto* number = v ? std::get_if<int64_t>(v) : nullptr;
  return number ? *number : standard;
}

double number_of(const JsonObject& object, std::string_view key, double standard) {
  const JsonValue* v = find_member(object, key);
  if (!v) return standard;
  if (const auto* number = std::get_if<double>(v)) return *number;
  if (const auto* number = std::get_if<int64_t>(v)) return static_cast<double>(*number);
  return standard;
}

std::optional<double> as_number(const JsonValue& value) {
  if (const auto* d = std::get_if<double>(&value)) return *d;
  if (const auto* i = std::get_if<int64_t>(&value)) return static_cast<double>(*i);
  if (std::holds_alternative<std::nullptr_t>(value)) return std::nan("");
  return std::nullopt;
}

std::optional<JsonObject> parse_json_object(std::string_view text) {
  JsonObject out;
  if (!read_flat(text, Form::kObject, [&](JsonObject&& object) { out = std::move(object); })) return std::nullopt;
  return out;
}

std::optional<JsonObject> parse_json_record(std::string_view text) {
  JsonObject out;
  if (!read_flat(
          text, Form::kObject, [&](JsonObject&& object) { out = std::move(object); }, true))
    return std::nullopt;
  return out;
}

bool is_json_number(const JsonValue& value) {
  return std::holds_alternative<int64_t>(value) || std::holds_alternative<double>(value) || is_long_integer(value);
}

std::optional<std::vector<JsonValue>> parse_json_array(std::string_view text) {
  std::vector<JsonValue> out;
  const auto take = [&](JsonObject&& list) {
    out.reserve(list.size());
    for (auto& [key, value] : list) out.push_back(std::move(value));
  };
  if (!read_flat(text, Form::kValues, take)) return std::nullopt;
  return out;
}

bool visit_json_list(std::string_view text, const std::function<void(JsonObject&&)>& use) {
  return read_flat(text, Form::kObjects, use);
}

int64_t json_int(const JsonObject& object, std::string_view key, std::string_view where) {
  const JsonValue* v = find_member(object, key);
  const int64_t* number = v ? std::get_if<int64_t>(v) : nullptr;
  require(number != nullptr, ExitCode::kBadData, where, ": has no integer \"", key, "\"");
  return *number;
}

double json_number(const JsonObject& object, std::string_view key, std::string_view where) {
  const JsonValue* v = find_member(object, key);
  if (const int64_t* integer = v ? std::get_if<int64_t>(v) : nullptr) return static_cast<double>(*integer);
  const double* number = v ? std::get_if<double>(v) : nullptr;
  require(number != nullptr, ExitCode::kBadData, where, ": has no number \"", key, "\"");
  return *number;
}

std::optional<bool> json_bool(const JsonObject& object, std::string_view key) {
  const JsonValue* v = find_member(object, key);
  const bool* truth = v ? std::get_if<bool>(v) : nullptr;
  return truth ? std::optional(*truth) : std::nullopt;
}

const std::string& json_text(const JsonObject& object, std::string_view key, std::string_view where) {
  const JsonValue* v = find_member(object, key);
  const std::string* text = v ? text_in(*v) : nullptr;
  require(text != nullptr, ExitCode::kBadData, where, ": has no text \"", key, "\"");
  return *text;
}

std::optional<int64_t> json_integer(std::string_view text, std::string_view key) {
  const auto object = parse_json_object(text);
  const JsonValue* v = object ? find_member(*object, key) : nullptr;
  const int64_t* number = v ? std::get_if<int64_t>(v) : nullptr;
  return number ? std::optional(*number) : std::nullopt;
}

const std::string& text_field(const JsonObject& object, const std::string& name) {
  const JsonValue* value = find_member(object, name);
  require(value != nullptr, ExitCode::kBadData, "has no field \"", name, "\"");
  const auto* text = std::get_if<std::string>(value);
  require(text != nullptr, ExitCode::kBadData, "its field \"", name, "\" is no text");
  return *text;
}

}  // namespace lockstep
