// Patterns of dotted names, such as "*.bias". Plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// * matches any characters, also none; all else itself.
bool matches(std::string_view pattern, std::string_view name);
bool matches_any(const std::vector<std::string>& patterns, std::string_view name);

}  // namespace lockstep
