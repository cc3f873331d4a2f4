// RequestFields: the body of a request, field by field. What is missing, of another kind, out of range or unknown is
// refused by name, as in OpenAI's API.
#pragma once

#include <cstdint>
#include <exception>
#include <initializer_list>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/io/json.h"
#include "launch/http/http_message.h"

namespace lockstep {

// What a request is refused with.
class ApiError final : public std::exception {
 public:
  explicit ApiError(HttpError error) : error_(std::move(error)) {}
  const HttpError& error() const { return error_; }
  const char* what() const noexcept override { return error_.message.c_str(); }

 private:
  HttpError error_;
};

// Throws ApiError with status 400; `field`: the one that is wrong, or empty.
template <class... Parts>
[[noreturn]] void refuse_field(const std::string& field, const Parts&... message) {
  throw ApiError({400, str(message...), field});
}

class RequestFields {
 public:
  // Throws ApiError for a body that is no JSON object, is no UTF-8, has a key twice, or is nested deeper than 32
  // levels.
  explicit RequestFields(std::string_view body);

  // Fields that are absent or null give nothing. Throw ApiError for another kind of value and for one out of range.
  std::optional<double> number(const std::string& name, double least, double most);
  std::optional<int64_t> integer(const std::string& name, int64_t least,
                                 int64_t most = std::numeric_limits<int64_t>::max());
  std::optional<bool> flag(const std::string& name);
  std::optional<std::string> text(const std::string& name);
  // Any kind of value; null where it is absent or null.
  const JsonValue* value(const std::string& name);

  // Fields that do not change an answer.
  void ignore(std::initializer_list<const char*> names) { known_.insert(names.begin(), names.end()); }
  // A field that would change the answer in a way that this server has not: refused unless its value is null or, as
  // JSON, one of `same`, which ask for what is done anyway.
  void refuse_unless(const std::string& name, std::initializer_list<std::string_view> same);
  // Throws ApiError for a field that none of the above has named.
  void refuse_unknown() const;

  const JsonObject& object() const { return object_; }

 private:
  JsonObject object_;
  std::set<std::string> known_;
};

// The field "model" of a request. Throws ApiError with status 404 where it names another than `served`.
void check_model(RequestFields& fields, const std::string& served);

}  // namespace lockstep
