// A YAML file and its command-line overrides as one tree of keys, each value with its place. The door to yaml-cpp.
// A plain value; Config owns one.
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
  bool quoted = false;                        // a scalar in quotes is a text, whatever it looks like
  int line = 0;                               // from 1; of the key where there is one; 0 in an override
  std::shared_ptr<const std::string> source;  // the file's name, "override 3 (key=value)", "set by eval (key=value)"
  std::string key;                            // within the parent map
  std::string scalar;
  std::vector<ConfigNode> children;  // of a list or a map, in the order written; keys of a map are unique

  std::string where() const;  // "configs/gpt.yaml:12", "override 3 (optim.lr=0.1)"
  const ConfigNode* find(std::string_view child_key) const;
};

class ConfigTree {
 public:
  // A configuration is small: what is larger is a mistake or an attack, and is refused before it costs time or memory.
  static constexpr int64_t kMaxBytes = 1 << 20;
  static constexpr int kMaxDepth = 32;
  static constexpr int kMaxValues = 20000;       // after aliases are expanded
  static constexpr int kMaxPunctuation = 60000;  // brackets and commas

  ConfigTree();

  // Throws ExitCode::kMissingInput where there is no such file, kConfig (with file:line) for everything else.
  static ConfigTree load(const std::string& path, const std::vector<std::string>& overrides = {});
  static ConfigTree parse(std::string_view yaml, const std::string& name,
                          const std::vector<std::string>& overrides = {});

  // "key.path=value": the value is YAML; maps merge, everything else replaces; "rules.0.decay=0" enters a list.
  // Messages count what the user gave.
  void apply_override(std::string_view text);
  // The same for what a command sets by itself; messages say "set by COMMAND (key.path=value)".
  void set(std::string_view text, std::string_view command);

  const ConfigNode& root() const { return root_; }  // always a map

 private:
  void apply(std::string_view text, const std::string& from);

  ConfigNode root_;
  int overrides_ = 0;
};

}  // namespace lockstep
