// Config: binds the keys of a configuration to options structs, and rejects every key that has no effect.
// Owned by the command that runs; the structs it fills belong to the caller and outlive only the call of bind().
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/field.h"
#include "core/io/json.h"
#include "launch/config/config_tree.h"

namespace lockstep {

// One documented key, as `lockstep config keys` shows it. Keys of list elements are written rules[].decay.
struct ConfigKey {
  std::string key, type, standard, unit, range, doc;  // `standard` is the default, as YAML
  std::string condition;                              // "has an effect only with ..." of a key given to know()
  bool shapes_math = true;
};

class Config {
 public:
  Config() = default;
  explicit Config(ConfigTree tree) : tree_(std::move(tree)) {}

  // Reads section.key of every field into its target, which holds the default until then, and remembers the result.
  // Throws ExitCode::kConfig on a wrong type, range or choice. Section "" is the top level. May be called several
  // times for one section (first the selector "name", then the options of the choice).
  void bind(const std::string& section, std::vector<Field> fields);

  // Keys that another choice would use; `why` completes "key ...", e.g. "has an effect only with model.name: gpt".
  void know(const std::string& section, const std::vector<Field>& fields, const std::string& why);

  // After all bind and know: throws ExitCode::kConfig that lists every key nobody bound.
  void finish() const;

  // A bound key whose value (0, for example) stands for another that is known by now: text(), math_text() and
  // dump_yaml() show `value` from here on, and its origin with `why`.
  void resolve(const std::string& key, int64_t value, const std::string& why);

  bool given(const std::string& key) const;  // by the file or an override
  // "configs/gpt.yaml:12: optim.lr", for messages about values that are wrong together; "optim.lr (default)".
  std::string place(const std::string& key) const;

  std::string dump_yaml() const;  // the resolved configuration, with each value's origin; loads to the same values
  std::string json() const;       // one object: key -> {"value": ..., "origin": "file.yaml:3"}
  std::string text() const;       // every bound key, sorted "key: value" lines
  std::string math_text() const;  // those that shape the mathematics: digests, preflight, resume

  std::vector<ConfigKey> keys() const;  // bound and known, in the order of the calls

 private:
  struct Value {
    std::string key, text, math_text, origin;
    bool shapes_math = true, is_sections = false;
    std::vector<std::string> elements;
    JsonValue json = nullptr;
  };

  const ConfigNode* node_at(const std::string& key) const;
  void document(const std::string& full_key, const Field& field, const std::string& why);
  void list_unused(const ConfigNode& map, const std::string& prefix, std::vector<std::string>& problems) const;

  ConfigTree tree_;
  std::vector<Value> values_;
  std::vector<ConfigKey> keys_;
};

struct ConfigDifference {
  std::string key, a, b;  // "(absent)" where a side lacks the key
};
// Differing keys of two text() or math_text(), in key order.
std::vector<ConfigDifference> diff(std::string_view text_a, std::string_view text_b);

// `lockstep config keys`: aligned columns, or one JSON list.
std::string keys_table(const std::vector<ConfigKey>& keys);
std::string keys_json(const std::vector<ConfigKey>& keys);

}  // namespace lockstep
