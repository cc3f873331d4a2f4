#include "launch/serve/request_fields.h"

#include <cmath>
#include <vector>

namespace lockstep {
namespace {

// Whether an object of a JSON text, at any depth, has more keys than that: the time of reading one grows with their
// square. Counts colons outside of texts.
bool has_object_of(size_t keys, std::string_view text) {
  std::vector<size_t> open;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') ++i;
    else if (c == '"') quoted = !quoted;
    else if (quoted) continue;
    else if (c == '{' || c == '[') open.push_back(0);
    else if ((c == '}' || c == ']') && !open.empty()) open.pop_back();
    else if (c == ':' && !open.empty() && ++open.back() > keys) return true;
  }
  return false;
}

}  // namespace

RequestFields::RequestFields(std::string_view body) {
  constexpr size_t kMostKeys = 4096;
  if (has_object_of(kMostKeys, body)) refuse_field("", "an object of the body has more than ", kMostKeys, " fields");
  auto object = parse_json_object(body);
  if (!object)
    refuse_field("",
                 "the body is no JSON object (or is no UTF-8, has a key twice, or is nested deeper than 32 levels)");
  object_ = std::move(*object);
}

const JsonValue* RequestFields::value(const std::string& name) {
  known_.insert(name);
  const JsonValue* found = find_member(object_, name);
  return found && std::holds_alternative<std::nullptr_t>(*found) ? nullptr : found;
}

std::optional<double> RequestFields::number(const std::string& name, double least, double most) {
  const JsonValue* found = value(name);
  if (!found) return std::nullopt;
  const auto* whole = std::get_if<int64_t>(found);
  const auto* real = std::get_if<double>(found);
  if (!whole && !real) refuse_field(name, "'", name, "' must be a number");
  const double out = whole ? static_cast<double>(*whole) : *real;
  if (!std::isfinite(out) || out < least || out > most)
    refuse_field(name, "'", name, "' is ", out, ": must be in [", least, ", ", most, "]");
  return out;
}

std::optional<int64_t> RequestFields::integer(const std::string& name, int64_t least, int64_t most) {
  const JsonValue* found = value(name);
  if (!found) return std::nullopt;
  const auto* whole = std::get_if<int64_t>(found);
  if (!whole) refuse_field(name, "'", name, "' must be a whole number");
  if (*whole < least || *whole > most) {
    if (most == std::numeric_limits<int64_t>::max())
      refuse_field(name, "'", name, "' is ", *whole, ": must be ", least, " or more");
    refuse_field(name, "'", name, "' is ", *whole, ": must be in [", least, ", ", most, "]");
  }
  return *whole;
}

std::optional<bool> RequestFields::flag(const std::string& name) {
  const JsonValue* found = value(name);
  if (!found) return std::nullopt;
  const auto* truth = std::get_if<bool>(found);
  if (!truth) refuse_field(name, "'", name, "' must be true or false");
  return *truth;
}

std::optional<std::string> RequestFields::text(const std::string& name) {
  const JsonValue* found = value(name);
  if (!found) return std::nullopt;
  const auto* text = std::get_if<std::string>(found);
  if (!text) refuse_field(name, "'", name, "' must be a text");
  return *text;
}

void RequestFields::refuse_unless(const std::string& name, std::initializer_list<std::string_view> same) {
  const JsonValue* found = value(name);
  if (!found) return;
  const std::string text = json_text_of(*found);
  for (const std::string_view each : same)
    if (text == each) return;
  refuse_field(name, "'", name, "' is not supported, and would change the answer: leave it out");
}

void RequestFields::refuse_unknown() const {
  for (const auto& [name, value] : object_)
    if (!known_.contains(name) && !std::holds_alternative<std::nullptr_t>(value))
      refuse_field(name, "'", name, "' is no field of this request");
}

void check_model(RequestFields& fields, const std::string& served) {
  const auto name = fields.text("model");
  if (name && *name != served)
    throw ApiError({404, str("there is no model '", *name, "' here; the one that is served is '", served, "'"), "model",
                    "model_not_found"});
}

}  // namespace lockstep
