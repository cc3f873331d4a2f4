// ConfigTree: a YAML file and its command-line overrides as one tree of keys, in which each value has its source
// location. Only config_tree.cpp includes yaml-cpp. A plain value; Config owns one.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct ConfigNode {
  enum class Kind : uint8_t { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  bool quoted = false;                        // a scalar in quotes is always text
  int line = 0;                               // from 1; the key's line if there is a key; 0 in an override
  std::shared_ptr<const std::string> source;  // the file's name, "override 3 (key=value)", "set by eval (key=value)"
  std::string key;                            // within the parent map
  std::string scalar;
  std::vector<ConfigNode> children;  // of a list or a map, in the order written; keys of a map are unique

  std::string where() const;  // "configs/gpt.yaml:12", "override 3 (optim.lr=0.1)"
  const ConfigNode* find(std::string_view child_key) const;
};

class ConfigTree {
 public:
  // Limits on the input. A larger configuration is a mistake or an attack, and is rejected before it costs time or
  // memory.
  static constexpr int64_t kMaxBytes = 1 << 20;
  static constexpr int kMaxDepth = 32;
  static constexpr int kMaxValues = 20000;       // after aliases are expanded
  static constexpr int kMaxPunctuation = 60000;  // brackets and commas

  ConfigTree();

  // Throws ExitCode::kMissingInput if there is no such file, kConfig (with file:line) for all other errors.
  static ConfigTree load(const std::string& path, const std::vector<std::string>& overrides = {});
  static ConfigTree parse(std::string_view yaml, const std::string& name,
                          const std::vector<std::string>& overrides = {});

  // Applies "key.path=value". The value is YAML; maps are merged, all other values are replaced; "rules.0.decay=0"
  // changes a list element. "~key.path" takes a key, a section or a list element away, as if the file did not have it;
  // throws ExitCode::kConfig where nothing gives it. Messages number the overrides that the user gave.
  void apply_override(std::string_view text);
  // The same for a value that a command sets; messages say "set by COMMAND (key.path=value)".
  void set(std::string_view text, std::string_view command);

  const ConfigNode& root() const { return root_; }  // always a map

 private:
  void apply(std::string_view text, const std::string& from);
  void take_away(std::string_view path, const std::shared_ptr<const std::string>& source);

  ConfigNode root_;
  int overrides_ = 0;
};

}  // namespace lockstep
