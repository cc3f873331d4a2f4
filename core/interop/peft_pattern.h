// PeftPattern: what "rank_pattern" or "alpha_pattern" of peft's adapter_config.json gives a module. A value.
#pragma once

#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "core/io/json.h"

namespace lockstep {

class HfConfig;

// Keys are Python's regular expressions for the ends of modules' names, from a dot on; the first that matches counts.
// Taken are those that both languages have, without repeated groups.
class PeftPattern {
 public:
  // Throws ExitCode::kBadData naming the key for other patterns, and for what is no number.
  PeftPattern(const HfConfig& config, const char* key);
  // `otherwise`: where none matches. Throws kBadData for a name of more than 1000 characters.
  double of(const std::string& module, double otherwise) const;

 private:
  std::vector<std::pair<std::regex, double>> patterns_;
};

}  // namespace lockstep
