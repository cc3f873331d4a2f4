#include "core/interop/peft_pattern.h"

#include "core/base/error.h"

namespace lockstep {
namespace {

constexpr size_t kLongestPattern = 500, kLongestName = 1000;

bool is_taken(std::string_view pattern) {
  constexpr std::string_view kKnown = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-\\*+?|()[]^$";
  if (pattern.empty() || pattern.size() > kLongestPattern || pattern.find_first_not_of(kKnown) != pattern.npos ||
      pattern.find("(?") != pattern.npos)
    return false;
  for (size_t at = pattern.find('\\'); at != pattern.npos; at = pattern.find('\\', at + 2))
    if (at + 1 == pattern.size() ||
        std::string_view(".-dws\\*+?|()[]^$").find(pattern[at + 1]) == std::string_view::npos)
      return false;
  for (size_t at = pattern.find(')'); at != pattern.npos; at = pattern.find(')', at + 1))
    if (at + 1 < pattern.size() && std::string_view("*+?").find(pattern[at + 1]) != std::string_view::npos)
      return false;
  return true;
}

}  // namespace

PeftPattern::PeftPattern(const HfConfig& config, const char* key) {
  const auto object = config.object(key);
  if (!object) return;
  for (const auto& [pattern, value] : object->members()) {
    if (!is_taken(pattern)) config.refuse(key, str("has the pattern ", pattern, ", which is not supported"));
    const double number = object->number(pattern);
    try {
      // Of the kind whose search takes a time that is proportional to pattern and name: these are of anybody's making.
      patterns_.emplace_back(
          std::regex(str("(.*\\.)?(", pattern, ")"), std::regex::ECMAScript | std::regex_constants::__polynomial),
          number);
    } catch (const std::regex_error&) {
      config.refuse(key, str("has the pattern ", pattern, ", which is no regular expression"));
    }
  }
}

double PeftPattern::of(const std::string& module, double otherwise) const {
  if (patterns_.empty()) return otherwise;
  require(module.size() <= kLongestName, ExitCode::kBadData, "the name of a module has ", module.size(), " characters");
  for (const auto& [pattern, value] : patterns_)
    if (std::regex_match(module, pattern)) return value;
  return otherwise;
}

}  // namespace lockstep
