#include "launch/config/pretrained.h"

#include <charconv>

#include "core/base/error.h"
#include "core/interop/peft_adapter.h"

namespace lockstep {
namespace {

// Whether a value of the configuration, as it is written there, is that of the folder.
bool agrees(const ConfigNode& node, const JsonValue& value) {
  if (const auto* json = std::get_if<JsonText>(&value); json && node.kind == ConfigNode::Kind::kMap) {
    const auto object = parse_json_object(json->text);
    return object && std::all_of(object->begin(), object->end(), [&](const auto& member) {
             const ConfigNode* own = node.find(member.first);
             // What is left out is 0, as all keys of such lists have it.
             return own ? agrees(*own, member.second)
                        : member.second == JsonValue(int64_t{0}) || member.second == JsonValue(0.0);
           });
  }
  if (const auto* json = std::get_if<JsonText>(&value); json && node.kind == ConfigNode::Kind::kList) {
    const auto list = parse_json_array(json->text);
    return list && list->size() == node.children.size() &&
           std::equal(list->begin(), list->end(), node.children.begin(),
                      [](const JsonValue& v, const ConfigNode& n) { return agrees(n, v); });
  }
  if (node.kind != ConfigNode::Kind::kScalar) return false;
  if (const auto* text = std::get_if<std::string>(&value)) return node.scalar == *text;
  if (const auto* truth = std::get_if<bool>(&value)) return node.scalar == to_text(*truth);
  if (std::holds_alternative<JsonText>(value)) return false;
  const auto* whole = std::get_if<int64_t>(&value);
  const double wanted = whole ? static_cast<double>(*whole) : std::get<double>(value);
  const char* end = node.scalar.data() + node.scalar.size();
  double number = 0;
  const auto [rest, error] = std::from_chars(node.scalar.data(), end, number);
  return error == std::errc() && rest == end && number == wanted;
}

const ConfigNode* find(const ConfigTree& tree, std::string_view section, std::string_view key) {
  const ConfigNode* node = tree.root().find(section);
  return node ? node->find(key) : nullptr;
}

// The text of init.KEY; empty where there is none.
std::string path_of(const ConfigTree& tree, std::string_view key) {
  const ConfigNode* node = find(tree, "init", key);
  return node && node->kind == ConfigNode::Kind::kScalar ? node->scalar : "";
}

// Sets section.key to what the file at `place` says; a value that is given must be that.
void take(ConfigTree& tree, const std::string& section, const std::string& key, const JsonValue& value,
          const std::string& place) {
  const ConfigNode* given = find(tree, section, key);
  if (!given) return tree.set(str(section, ".", key, "=", json_text_of(value)), place);
  constexpr size_t kShown = 100;
  std::string there = json_text_of(value);
  if (there.size() > kShown) there = there.substr(0, kShown) + "...";
  require(agrees(*given, value), ExitCode::kConfig, given->where(), ": ", section, ".", key, ": ",
          given->kind == ConfigNode::Kind::kScalar ? given->scalar : "another list", ", but by ", place, " it is ",
          there, "; leave the key out, it is taken from there");
}

}  // namespace

std::shared_ptr<const HfModel> take_model_of_folder(ConfigTree& tree) {
  const std::string from = path_of(tree, "from");
  if (from.empty() || !is_pretrained(from)) return {};
  auto model = std::make_shared<HfModel>(read_hf_model(from));
  const std::string place = is_hf_folder(model->folder) ? str(model->folder, "/config.json") : model->folder;
  if (!model->model.empty()) take(tree, "model", "name", model->model, place);
  for (const auto& [key, value] : model->options) take(tree, "model", key, value, place);
  return model;
}

std::shared_ptr<const HfModel> take_adapter_of_folder(ConfigTree& tree, const HfModel* model) {
  const std::string folder = path_of(tree, "adapter");
  if (folder.empty()) return {};
  require(model != nullptr, ExitCode::kConfig, find(tree, "init", "adapter")->where(),
          ": init.adapter needs the model that it adapts, a folder of transformers, as init.from");
  PeftAdapter adapter = read_peft_adapter(folder, *model);
  const LoraOptions& o = adapter.options;
  const std::string place = str(folder, "/", kPeftConfig), weights = str(folder, "/", kPeftWeights);
  take(tree, "lora", "rank", o.rank, place);
  take(tree, "lora", "alpha", o.alpha, place);
  take(tree, "lora", "rslora", o.rslora, place);
  take(tree, "lora", "dora", o.dora, place);
  if (!find(tree, "lora", "dropout")) take(tree, "lora", "dropout", o.dropout, place);
  const auto list = [](const std::vector<std::string>& names) {
    return json_array(std::vector<JsonValue>(names.begin(), names.end()));
  };
  take(tree, "lora", "targets", list(o.targets), weights);
  if (!o.train.empty()) take(tree, "lora", "train", list(o.train), weights);
  std::vector<JsonObject> rules;
  for (const LoraRule& r : o.rules) rules.push_back({{"pattern", r.pattern}, {"rank", r.rank}, {"alpha", r.alpha}});
  if (!rules.empty()) take(tree, "lora", "rules", json_array(rules), weights);
  return std::make_shared<HfModel>(std::move(adapter.weights));
}

}  // namespace lockstep
