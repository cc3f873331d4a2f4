// Config: binds the keys of a configuration to options structs, and rejects every key that has no effect. Owned by the
// command. The structs that it fills belong to the caller and are accessed only during bind().
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/field.h"
#include "core/io/json.h"
#include "launch/config/config_tree.h"

namespace lockstep {

// One key in the form of `lockstep config keys`. Keys of list elements are written rules[].decay.
struct ConfigKey {
  std::string key, type, standard, unit, range, doc;  // `standard`: the default, in YAML
  std::string condition;                              // "has an effect only with ...", for keys passed to know()
  bool shapes_math = true;
  std::vector<std::string> choices = {};  // of a choice, or of each element of a list of choices
  double min = -std::numeric_limits<double>::infinity(), max = std::numeric_limits<double>::infinity();
  JsonValue value = nullptr;  // the default
};

// Whether the fields have the same type, default, unit, range and text, so that one line describes both.
bool documented_alike(const Field& a, const Field& b);

class Config {
 public:
  Config() = default;
  explicit Config(ConfigTree tree) : tree_(std::move(tree)) {}

  // Reads section.key of every field into the field's target, which holds the default before, and records the value.
  // Throws ExitCode::kConfig for a wrong type, range or choice. Section "" is the top level. May be called several
  // times for one section (first the selector "name", then the options of the choice).
  void bind(const std::string& section, std::vector<Field> fields);

  // Declares keys that only another choice would use; `why` completes the sentence "key ...", e.g. "has an effect only
  // with model.name: gpt".
  void know(const std::string& section, const std::vector<Field>& fields, const std::string& why);

  // Of the keys that the file or an override gives, those that know() has declared and nothing has bound, in the order
  // of the file. To be called after all bind() and know().
  struct WithoutEffect {
    std::string key, place, why;  // `why`: "has an effect only with optim.name: adam"
  };
  std::vector<WithoutEffect> without_effect() const;

  // To be called after all bind() and know(): throws ExitCode::kConfig listing every key that was not bound.
  void finish() const;

  // Replaces the value of a bound key that stands for another value (such as 0 for a default that is known only now).
  // From then on text(), math_text() and dump_yaml() show `value`, and its origin with `why`.
  void resolve(const std::string& key, int64_t value, const std::string& why);
  // The same for a value that another key gives: `origin` takes the place of its own.
  void replace(const std::string& key, int64_t value, const std::string& origin);

  bool given(const std::string& key) const;  // whether the file or an override sets it
  // "configs/gpt.yaml:12: optim.lr" or "optim.lr (default)", for messages about values that do not fit together.
  std::string place(const std::string& key) const;

  std::string dump_yaml() const;  // the resolved configuration, with each value's origin; loads to the same values
  std::string json() const;       // one object: key -> {"value": ..., "origin": "file.yaml:3"}
  std::string text() const;       // every bound key, sorted "key: value" lines
  // The keys that affect results: for digests, preflight, resume. Without the key `without`, if any, and with the key
  // `as_given`, a list of sections, as text() shows it: without the keys of its elements that Field::given leaves out.
  std::string math_text(std::string_view without = {}, std::string_view as_given = {}) const;

  std::vector<ConfigKey> keys() const;  // all keys of bind() and know(), in the order of the calls

 private:
  struct Value {
    std::string key, text, math_text, origin;
    bool shapes_math = true, is_sections = false;
    std::vector<std::string> elements;
    JsonValue json = nullptr;
  };

  Value& bound(const std::string& key);
  const ConfigNode* node_at(const std::string& key) const;
  void document(const std::string& full_key, const Field& field, const std::string& why);
  // Calls `visit` with each key that is given and not bound, and whether it is a section's.
  using VisitUnused = std::function<void(const ConfigNode& node, const std::string& key, bool section)>;
  void visit_unused(const ConfigNode& map, const std::string& prefix, const VisitUnused& visit) const;
  std::string condition_of(const std::string& key) const;  // by know(); empty: unknown
  std::string problem_of(const ConfigNode& node, const std::string& key, bool section) const;

  ConfigTree tree_;
  std::vector<Value> values_;
  std::vector<ConfigKey> keys_;
};

struct ConfigDifference {
  std::string key, a, b;  // "(absent)" on a side without the key
};
// The keys that differ between two results of text() or of math_text(), in key order.
std::vector<ConfigDifference> diff(std::string_view text_a, std::string_view text_b);

// `lockstep config keys`: aligned columns, one line a key; or for a terminal of `width` columns, at least 20, a
// paragraph a key, of lines that are no longer, but for a word that is; or one JSON list.
std::string keys_table(const std::vector<ConfigKey>& keys);
std::string keys_paragraphs(const std::vector<ConfigKey>& keys, int width);
std::string keys_json(const std::vector<ConfigKey>& keys);
// `lockstep config schema`: a JSON Schema (draft-07) of the YAML file that these are the keys of.
std::string config_schema(const std::vector<ConfigKey>& keys);

}  // namespace lockstep
