#include "launch/config/pretrained.h"

#include <charconv>

#include "core/base/error.h"

namespace lockstep {
namespace {

// Whether a value of the configuration, as it is written there, is that of the folder.
bool agrees(const ConfigNode& node, const JsonValue& value) {
  if (node.kind != ConfigNode::Kind::kScalar) return false;
  if (const auto* text = std::get_if<std::string>(&value)) return node.scalar == *text;
  if (const auto* truth = std::get_if<bool>(&value)) return node.scalar == to_text(*truth);
  const auto* whole = std::get_if<int64_t>(&value);
  const double wanted = whole ? static_cast<double>(*whole) : std::get<double>(value);
  const char* end = node.scalar.data() + node.scalar.size();
  double number = 0;
  const auto [rest, error] = std::from_chars(node.scalar.data(), end, number);
  return error == std::errc() && rest == end && number == wanted;
}

}  // namespace

std::shared_ptr<const HfModel> take_model_of_folder(ConfigTree& tree) {
  const ConfigNode* init = tree.root().find("init");
  const ConfigNode* from = init ? init->find("from") : nullptr;
  if (!from || from->kind != ConfigNode::Kind::kScalar || from->scalar.empty() || !is_pretrained(from->scalar))
    return {};
  auto model = std::make_shared<HfModel>(read_hf_model(from->scalar));
  const std::string place = is_hf_folder(model->folder) ? cat(model->folder, "/config.json") : model->folder;
  const auto take = [&](const std::string& key, const JsonValue& value) {
    const ConfigNode* section = tree.root().find("model");
    const ConfigNode* given = section ? section->find(key) : nullptr;
    if (!given) return tree.set(cat("model.", key, "=", json_text_of(value)), place);
    require(agrees(*given, value), ExitCode::kConfig, given->where(), ": model.", key, ": ", given->scalar, ", but by ",
            place, " it is ", json_text_of(value), "; leave the key out, it is taken from there");
  };
  if (!model->model.empty()) take("name", model->model);
  for (const auto& [key, value] : model->options) take(key, value);
  return model;
}

}  // namespace lockstep
