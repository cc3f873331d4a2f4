#include "core/interop/hf_config.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/base/plain_file.h"

namespace lockstep {
namespace {
constexpr int64_t kLongest = 16 << 20;  // bytes

std::optional<double> number_of(const JsonValue& value) {  // nothing where it is no finite one
  if (const auto* whole = std::get_if<int64_t>(&value)) return static_cast<double>(*whole);
  const auto* real = std::get_if<double>(&value);
  return real && std::isfinite(*real) ? std::optional(*real) : std::nullopt;
}
}  // namespace

HfConfig HfConfig::load(const std::string& path) { return parse(InputFile(path).text(kLongest), path); }

HfConfig HfConfig::parse(std::string_view json, std::string path) {
  auto object = parse_json_object(json);
  require(object.has_value(), ExitCode::kBadData, path, ": is no JSON object with distinct keys");
  return {std::move(path), std::move(*object)};
}

const JsonValue* HfConfig::member(std::string_view key) const {
  const JsonValue* v = find_member(object_, key);
  return v && !std::holds_alternative<std::nullptr_t>(*v) ? v : nullptr;
}

bool HfConfig::is_null(std::string_view key) const { return find_member(object_, key) && !member(key); }

void HfConfig::refuse(std::string_view key, std::string_view why) const {
  throw Error(ExitCode::kBadData, str(path_, ": ", section_, key, why.starts_with(':') ? "" : " ", why));
}

std::optional<std::string> HfConfig::json_of(std::string_view key) const {
  const JsonValue* v = member(key);
  return v ? std::optional(json_text_of(*v)) : std::nullopt;
}

int64_t HfConfig::integer(std::string_view key, std::optional<int64_t> standard) const {
  const JsonValue* v = member(key);
  if (!v && standard) return *standard;
  const auto* n = v ? std::get_if<int64_t>(v) : nullptr;
  if (!n || *n < 0 || *n > std::numeric_limits<int32_t>::max()) refuse(key, "is no integer from 0 to 2147483647");
  return *n;
}

double HfConfig::number(std::string_view key, std::optional<double> standard) const {
  const JsonValue* v = member(key);
  if (!v && standard) return *standard;
  const std::optional<double> n = v ? number_of(*v) : std::nullopt;
  if (!n) refuse(key, "is no number");
  return *n;
}

bool HfConfig::truth(std::string_view key, bool standard) const {
  const JsonValue* v = member(key);
  if (!v) return standard;
  const auto* b = std::get_if<bool>(v);
  if (!b) refuse(key, "is neither true nor false");
  return *b;
}

std::string HfConfig::text(std::string_view key, std::optional<std::string> standard) const {
  const JsonValue* v = member(key);
  if (!v && standard) return *standard;
  const auto* s = v ? std::get_if<std::string>(v) : nullptr;
  if (!s) refuse(key, "is no text");
  return *s;
}

std::vector<JsonValue> HfConfig::list(std::string_view key) const {
  const JsonValue* v = member(key);
  const auto* text = v ? std::get_if<JsonText>(v) : nullptr;
  auto list = text ? parse_json_array(text->text) : std::nullopt;
  if (!list) refuse(key, "is no list");
  return std::move(*list);
}

std::vector<int64_t> HfConfig::integers(std::string_view key, std::optional<std::vector<int64_t>> standard) const {
  if (!member(key) && standard) return *standard;
  std::vector<int64_t> out;
  for (const JsonValue& e : list(key)) {
    const auto* n = std::get_if<int64_t>(&e);
    if (!n || *n < 0 || *n > std::numeric_limits<int32_t>::max())
      refuse(key, "holds what is no integer from 0 to 2147483647");
    out.push_back(*n);
  }
  return out;
}

std::vector<double> HfConfig::numbers(std::string_view key) const {
  if (!member(key)) return {};
  std::vector<double> out;
  for (const JsonValue& e : list(key)) {
    const std::optional<double> n = number_of(e);
    if (!n) refuse(key, "holds what is no number");
    out.push_back(*n);
  }
  return out;
}

std::vector<std::string> HfConfig::texts(std::string_view key) const {
  if (!member(key)) return {};
  std::vector<std::string> out;
  for (const JsonValue& e : list(key)) {
    const auto* s = std::get_if<std::string>(&e);
    if (!s) refuse(key, "holds what is no text");
    out.push_back(*s);
  }
  return out;
}

std::optional<HfConfig> HfConfig::object(std::string_view key) const {
  const JsonValue* v = member(key);
  if (!v) return {};
  const auto* text = std::get_if<JsonText>(v);
  auto object = text ? parse_json_object(text->text) : std::nullopt;
  if (!object) refuse(key, "is no object with distinct keys");
  HfConfig out{path_, std::move(*object)};
  out.section_ = str(section_, key, ".");
  return out;
}

std::string HfConfig::one_of(std::string_view key, std::initializer_list<std::string_view> values) const {
  std::string is = text(key, std::string(*values.begin())), known;
  if (std::find(values.begin(), values.end(), is) != values.end()) return is;
  for (std::string_view v : values) known += str(known.empty() ? "" : " or ", v);
  refuse(key, str(": ", is, " is not supported; ", known, " is"));
}

void HfConfig::need_truth(std::string_view key, bool value) const {
  if (truth(key, value) != value) refuse(key, str(": ", !value, " is not supported"));
}

}  // namespace lockstep
