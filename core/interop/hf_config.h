// HfConfig: config.json of a folder that Hugging Face's transformers saved, read key by key. Its errors are
// ExitCode::kBadData, one line that names file and key. A value.
#pragma once

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"

namespace lockstep {

class HfConfig {
 public:
  // Throws ExitCode::kMissingInput where there is no such file.
  static HfConfig load(const std::string& path);
  static HfConfig parse(std::string_view json, std::string path);

  const std::string& path() const { return path_; }

  // Absent keys and null stand for `standard`; without one the key must be there. Integers are in [0, 2^31).
  int64_t integer(std::string_view key, std::optional<int64_t> standard = {}) const;
  double number(std::string_view key, std::optional<double> standard = {}) const;
  bool truth(std::string_view key, bool standard) const;
  std::string text(std::string_view key, std::optional<std::string> standard = {}) const;
  std::vector<int64_t> integers(std::string_view key, std::optional<std::vector<int64_t>> standard = {}) const;
  std::vector<double> numbers(std::string_view key) const;     // likewise
  std::vector<std::string> texts(std::string_view key) const;  // empty where it is absent
  std::optional<HfConfig> object(std::string_view key) const;
  const JsonObject& members() const { return object_; }
  int64_t size() const { return static_cast<int64_t>(object_.size()); }
  bool has(std::string_view key) const { return member(key) != nullptr; }  // and is not null
  bool is_null(std::string_view key) const;                                // and is there
  std::optional<std::string> json_of(std::string_view key) const;          // the value as JSON

  // Refuses a value of the key other than these; absent it is the first.
  std::string one_of(std::string_view key, std::initializer_list<std::string_view> values) const;
  void need_truth(std::string_view key, bool value) const;  // which is also that of an absent key
  [[noreturn]] void refuse(std::string_view key, std::string_view why) const;

 private:
  std::vector<JsonValue> list(std::string_view key) const;
  HfConfig(std::string path, JsonObject object) : path_(std::move(path)), object_(std::move(object)) {}
  const JsonValue* member(std::string_view key) const;  // null where it is absent or JSON's null

  std::string path_, section_;  // "rope_scaling." of an object in the file
  JsonObject object_;
};

}  // namespace lockstep
