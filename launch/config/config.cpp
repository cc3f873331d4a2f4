#include "launch/config/config.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/base/trace.h"
#include "launch/config/config_value.h"
#include "launch/config/did_you_mean.h"

namespace lockstep {
namespace {

using Kind = ConfigNode::Kind;

std::string join(const std::string& section, const std::string& key) {
  return section.empty() ? key : section + "." + key;
}

// Whether `key` is below `section`, as "a.b" is below "a"
bool is_below(std::string_view key, std::string_view section) {
  return key.size() > section.size() && key.starts_with(section) && key[section.size()] == '.';
}

}  // namespace

// The node of `key`; null if the file has no such key. Throws if a value is given in place of a section.
const ConfigNode* Config::node_at(const std::string& key) const {
  const ConfigNode* at = &tree_.root();
  for (size_t from = 0; from <= key.size();) {
    size_t dot = std::min(key.find('.', from), key.size());
    if (at->kind == Kind::kNull) return nullptr;
    require(at->kind == Kind::kMap, ExitCode::kConfig, at->where(), ": ", key.substr(0, from ? from - 1 : 0),
            " is a section: put its keys (", key.substr(from), ", ...) below it, indented");
    at = at->find(std::string_view(key).substr(from, dot - from));
    if (!at) return nullptr;
    from = dot + 1;
  }
  return at;
}

bool documented_alike(const Field& a, const Field& b) {
  return type_text(a) == type_text(b) && value_text(a) == value_text(b) && a.unit == b.unit &&
         range_text(a) == range_text(b) && a.doc == b.doc && a.shapes_math == b.shapes_math && a.choices == b.choices;
}

void Config::document(const std::string& full_key, const Field& field, const std::string& why) {
  keys_.push_back({full_key, type_text(field), value_text(field), field.unit, range_text(field), field.doc, why,
                   field.shapes_math, field.choices, field.min, field.max, json_value(field)});
  if (const auto* list = std::get_if<ListRef>(&field.target)) {
    std::shared_ptr<void> owner;
    for (const auto& inner : list->sample(owner)) document(full_key + "[]." + inner.key, inner, why);
  }
}

void Config::bind(const std::string& section, std::vector<Field> fields) {
  for (auto& field : fields) {
    std::string key = join(section, field.key);
    for (const auto& v : values_) {
      check(v.key != key, "the configuration key ", key,
            " is declared twice: an option of a choice may not have the name of a key that its section has for all of "
            "them");
      check(!is_below(v.key, key) && !is_below(key, v.key), "configuration key ", key, " collides with ", v.key,
            ", bound before");
    }
    document(key, field, "");
    Value value;
    value.key = key;
    value.shapes_math = field.shapes_math;
    const std::string by_default = value_text(field);
    const ConfigNode* node = node_at(key);
    if (node) read_value(field, *node, key);
    if (field.absent_at_default && value_text(field) == by_default) value.shapes_math = false;
    value.origin = node ? node->where() : "default";
    value.text = value_text(field);
    value.math_text = value_text(field, true);
    value.json = json_value(field);
    value.is_sections = std::holds_alternative<ListRef>(field.target);
    if (value.is_sections) value.elements = element_texts(field);
    values_.push_back(std::move(value));
  }
}

void Config::know(const std::string& section, const std::vector<Field>& fields, const std::string& why) {
  for (const auto& field : fields) document(join(section, field.key), field, why);
}

void Config::visit_unused(const ConfigNode& map, const std::string& prefix, const VisitUnused& visit) const {
  for (const auto& child : map.children) {
    const std::string key = join(prefix, child.key);
    if (std::any_of(values_.begin(), values_.end(), [&](auto& v) { return v.key == key; })) continue;
    const bool section = std::any_of(keys_.begin(), keys_.end(), [&](auto& k) { return is_below(k.key, key); });
    if (section && child.kind == Kind::kMap) visit_unused(child, key, visit);
    else if (!section || child.kind != Kind::kNull) visit(child, key, section);
  }
}

std::string Config::condition_of(const std::string& key) const {
  std::string why;
  for (const auto& k : keys_)
    if (!k.condition.empty() && k.key == key && why.find(k.condition) == std::string::npos)
      why += (why.empty() ? "" : " or ") + k.condition;
  return why;
}

std::string Config::problem_of(const ConfigNode& node, const std::string& key, bool section) const {
  if (const std::string why = condition_of(key); !why.empty())
    return str(node.where(), ": ", key, ": key without effect in this run: it ", why);
  if (section) return str(node.where(), ": ", key, " is a section: put its keys below it, indented");
  std::vector<std::string> values, sections;
  for (const auto& k : keys_) {
    if (k.key.find('[') != std::string::npos) continue;
    values.push_back(k.key);
    if (size_t dot = k.key.rfind('.'); dot != std::string::npos) sections.push_back(k.key.substr(0, dot));
  }
  std::string hint = did_you_mean(key, node.kind == Kind::kMap ? sections : values);
  if (hint.empty() && node.kind == Kind::kMap) hint = did_you_mean(key, values);  // "fp16: {enabled: true}"
  return str(node.where(), ": unknown key ", key.substr(0, 200), hint);
}

std::vector<Config::WithoutEffect> Config::without_effect() const {
  std::vector<WithoutEffect> out;
  visit_unused(tree_.root(), "", [&](const ConfigNode& node, const std::string& key, bool) {
    if (std::string why = condition_of(key); !why.empty()) out.push_back({key, node.where(), std::move(why)});
  });
  return out;
}

void Config::finish() const {
  trace_mark();
  std::vector<std::string> problems;
  visit_unused(tree_.root(), "", [&](const ConfigNode& node, const std::string& key, bool section) {
    problems.push_back(problem_of(node, key, section));
  });
  if (problems.empty()) return;
  constexpr size_t kShown = 10;
  std::string message;
  for (size_t i = 0; i < std::min(problems.size(), kShown); ++i) message += (i ? "\n" : "") + problems[i];
  if (problems.size() > kShown) message += str("\n... and ", problems.size() - kShown, " more such keys");
  throw Error(ExitCode::kConfig, message);
}

void Config::resolve(const std::string& key, int64_t value, const std::string& why) {
  Value& v = bound(key);
  replace(key, value, str(v.origin, ", where ", v.text, " stands for ", why));
}

void Config::replace(const std::string& key, int64_t value, const std::string& origin) {
  Value& v = bound(key);
  v.origin = origin;
  v.text = v.math_text = str(value);
  v.json = value;
}

Config::Value& Config::bound(const std::string& key) {
  const auto found = std::find_if(values_.begin(), values_.end(), [&](auto& v) { return v.key == key; });
  check(found != values_.end(), "configuration key ", key, " is resolved, but was never bound");
  return *found;
}

bool Config::given(const std::string& key) const { return node_at(key) != nullptr; }

std::string Config::place(const std::string& key) const {
  const ConfigNode* node = node_at(key);
  return node ? str(node->where(), ": ", key) : key + " (default)";
}

}  // namespace lockstep
