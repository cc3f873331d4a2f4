// The JSON Schema of `lockstep config schema`: its form, and that it takes what the program takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <filesystem>

#include "core/base/error.h"
#include "launch/config/settings.h"

namespace lockstep::config_schema_test {
namespace {

JsonObject object_of(const JsonValue& value) {
  const auto object = parse_json_object(std::get<JsonText>(value).text);
  if (!object) throw Error(ExitCode::kInternal, "no object: " + std::get<JsonText>(value).text);
  return *object;
}
const JsonValue* member(const JsonObject& object, std::string_view key) {
  const auto at = std::find_if(object.begin(), object.end(), [&](auto& m) { return m.first == key; });
  return at == object.end() ? nullptr : &at->second;
}
// Whether a text, or a list of texts, has this one.
bool names(const JsonValue& value, const std::string& text) {
  const auto* list = std::get_if<JsonText>(&value);
  const auto& held = list ? list->text : std::get<std::string>(value);
  return held == text || held.find("\"" + text + "\"") != std::string::npos;
}
double number_of(const JsonValue& value) {
  const auto* whole = std::get_if<int64_t>(&value);
  return whole ? static_cast<double>(*whole) : std::get<double>(value);
}

// What of draft-07 the schema uses, applied to a node of a YAML file; the problems.
class Validator {
 public:
  std::vector<std::string> problems;

  void check(const ConfigNode& node, const JsonObject& schema, const std::string& at) {
    if (const JsonValue* any = member(schema, "anyOf")) {
      bool fits = false;
      visit_json_list(std::get<JsonText>(*any).text, [&](JsonObject&& one) {
        Validator inner;
        inner.check(node, one, at);
        fits = fits || inner.problems.empty();
      });
      if (!fits) problems.push_back(at + ": none of anyOf");
      return;
    }
    using Kind = ConfigNode::Kind;
    double v = 0;
    const char *begin = node.scalar.data(), *end = begin + node.scalar.size();
    const auto read = std::from_chars(begin, end, v);
    const bool is_number = node.kind == Kind::kScalar && !node.quoted && begin != end && read.ptr == end;
    std::string type = "string";
    if (node.kind == Kind::kNull) type = "null";
    else if (node.kind == Kind::kList) type = "array";
    else if (node.kind == Kind::kMap) type = "object";
    else if (is_number) type = v == std::floor(v) ? "integer" : "number";
    else if (!node.quoted && (node.scalar == "true" || node.scalar == "false")) type = "boolean";
    if (const JsonValue* types = member(schema, "type"))
      if (!names(*types, type) && !(type == "integer" && names(*types, "number")))
        problems.push_back(str(at, ": is ", type));
    if (const JsonValue* choices = member(schema, "enum"))
      if (!(type == "boolean" ? std::get<JsonText>(*choices).text.find(node.scalar) != std::string::npos
                              : names(*choices, node.scalar)))
        problems.push_back(str(at, ": ", node.scalar, " is no choice"));
    if (is_number) {
      if (const JsonValue* least = member(schema, "minimum"); least && v < number_of(*least))
        problems.push_back(at + ": too small");
      if (const JsonValue* most = member(schema, "maximum"); most && v > number_of(*most))
        problems.push_back(at + ": too large");
    }
    if (node.kind == Kind::kMap) {
      const JsonValue* properties = member(schema, "properties");
      if (!properties) return;
      const JsonObject keys = object_of(*properties);
      for (const ConfigNode& child : node.children) {
        if (const JsonValue* inner = member(keys, child.key)) check(child, object_of(*inner), at + "." + child.key);
        else problems.push_back(str(at, ".", child.key, ": unknown"));
      }
    }
    if (node.kind == Kind::kList)
      if (const JsonValue* items = member(schema, "items"))
        for (const ConfigNode& child : node.children) check(child, object_of(*items), at + "[]");
  }
};

JsonObject schema() {
  const auto parsed = parse_json_object(config_schema(all_keys(builtin())));
  if (!parsed) throw Error(ExitCode::kInternal, "the schema is no JSON object");
  return *parsed;
}
std::vector<std::string> problems_of(const ConfigTree& tree) {
  Validator validator;
  validator.check(tree.root(), schema(), "");
  return validator.problems;
}

TEST(Schema, HasEveryKeyWithItsDocumentation) {
  const JsonObject root = schema();
  EXPECT_TRUE(names(*member(root, "$schema"), "http://json-schema.org/draft-07/schema#"));
  const std::vector<ConfigKey> keys = all_keys(builtin());
  EXPECT_GT(keys.size(), 50u);
  for (const ConfigKey& k : keys) {
    JsonObject at = root;
    std::string key = k.key;
    for (size_t dot; !key.empty(); key = dot == key.npos ? "" : key.substr(dot + 1)) {
      dot = key.find('.');
      std::string name = key.substr(0, dot);
      const bool element = name.ends_with("[]");
      if (element) name.resize(name.size() - 2);
      ASSERT_EQ(*member(at, "additionalProperties"), JsonValue(false)) << k.key;
      const JsonObject properties = object_of(*member(at, "properties"));
      const JsonValue* found = member(properties, name);
      ASSERT_NE(found, nullptr) << k.key;
      at = object_of(*found);
      if (element) at = object_of(*member(at, "items"));
    }
    if (member(at, "anyOf")) continue;
    const auto& text = std::get<std::string>(*member(at, "description"));
    EXPECT_TRUE(text.starts_with(k.doc)) << k.key;
    EXPECT_NE(text.find(k.unit), std::string::npos) << k.key;
    ASSERT_NE(member(at, "default"), nullptr) << k.key;
    if (!std::holds_alternative<JsonText>(k.value)) {
      EXPECT_EQ(*member(at, "default"), k.value) << k.key;
    }
    if (k.choices.empty()) continue;
    const JsonObject one = member(at, "enum") ? at : object_of(*member(at, "items"));
    const JsonValue* choices = member(one, "enum");
    ASSERT_NE(choices, nullptr) << k.key;
    for (const std::string& choice : k.choices)
      EXPECT_NE(std::get<JsonText>(*choices).text.find(choice), std::string::npos) << k.key;
  }
}

TEST(Schema, TakesEveryConfigurationOfTheRepository) {
  int files = 0;
  for (const char* folder : {"/configs", "/tests/bench"})
    for (const auto& entry : std::filesystem::directory_iterator(std::string(LOCKSTEP_SOURCE) + folder)) {
      if (entry.path().extension() != ".yaml") continue;
      ++files;
      EXPECT_EQ(problems_of(ConfigTree::load(entry.path())), std::vector<std::string>{}) << entry.path();
    }
  EXPECT_GE(files, 5);
}

TEST(Schema, TakesTheResolvedConfiguration) {
  const auto settings = load_settings(builtin(), ConfigTree::parse("data: {path: x.h5}", "test"), 1);
  EXPECT_EQ(problems_of(ConfigTree::parse(settings->config.dump_yaml(), "resolved")), std::vector<std::string>{});
}

TEST(Schema, RefusesWhatTheProgramRefuses) {
  for (const char* wrong :
       {"batches: {global: 8}", "batch: {globl: 8}", "batch: {global: many}", "batch: {global: 0}",
        "batch: {global: 1.5}", "model: {name: gtp}", "train: {anomaly: 1}", "sharding: {level: all}", "seed: [1, 2]",
        "optim: {rules: [{pattern: x, decai: 0}]}", "optim: {lr: fast}", "batch: 8"}) {
    const ConfigTree tree = ConfigTree::parse(wrong, "test");
    EXPECT_EQ(problems_of(tree).size(), 1u) << wrong;
    EXPECT_THROW(load_settings(builtin(), tree, 1), Error) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::config_schema_test
