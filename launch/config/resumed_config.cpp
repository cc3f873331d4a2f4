#include "launch/config/resumed_config.h"

#include <charconv>
#include <optional>

#include "core/base/error.h"
#include "launch/config/config_tree.h"

namespace lockstep {
namespace {

// The range of the value of `key` in lines of "key: value"; empty, at npos, if there is no such line.
struct TextValue {
  size_t begin = std::string_view::npos, size = 0;
};
TextValue value_of(std::string_view text, std::string_view key) {
  const std::string wanted = str(key, ": ");
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    if (text.substr(at, wanted.size()) == wanted) return {at + wanted.size(), end - at - wanted.size()};
    at = end + 1;
  }
  return {};
}

// A key that once counted as one that shapes results.
constexpr std::string_view kLossRows = "train.loss_rows";

std::optional<ConfigNode> train_key_in(const std::string& config, std::string_view key) {
  const ConfigTree tree = ConfigTree::parse(config, "the checkpoint's configuration");
  const ConfigNode* train = tree.root().find("train");
  const ConfigNode* value = train ? train->find(key) : nullptr;
  return value ? std::optional(*value) : std::nullopt;
}

}  // namespace

int64_t train_integer_in(const std::string& config, std::string_view key) {
  const auto value = train_key_in(config, key);
  return value ? integer_in(str(key, ": ", value->scalar), key) : 0;
}

bool scores_tasks(const std::string& config) {
  const auto tasks = train_key_in(config, "eval_tasks");
  return tasks && !tasks->children.empty();
}

int64_t integer_in(std::string_view math_text, std::string_view key) {
  const TextValue found = value_of(math_text, key);
  if (found.size == 0) return 0;
  int64_t value = 0;
  const char *begin = math_text.data() + found.begin, *end = begin + found.size;
  const auto [stop, error] = std::from_chars(begin, end, value);
  return error == std::errc() && stop == end ? value : 0;
}

std::string resolved_math_text(const CheckpointInfo& info) {
  std::string text = info.math_text;
  auto resolve = [&](std::string_view key, int64_t value) {
    const TextValue found = value_of(text, key);
    if (value > 0 && found.size > 0) text.replace(found.begin, found.size, str(value));
  };
  if (integer_in(text, "batch.micro") == 0)
    resolve("batch.micro", integer_in(text, "batch.global") / std::max<int64_t>(1, info.ranks));
  if (integer_in(text, "schedule.steps") == 0) resolve("schedule.steps", train_integer_in(info.config, "steps"));
  if (const TextValue rows = value_of(text, kLossRows); rows.size > 0) {
    const size_t begin = rows.begin - kLossRows.size() - std::string_view(": ").size();
    text.erase(begin, std::min(rows.begin + rows.size + 1, text.size()) - begin);
  }
  return text;
}

}  // namespace lockstep
