// Suggestions for a mistyped word: the candidate that is nearest by edit distance, or has the same name in another
// section.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// The number of insertions, deletions, replacements and swaps of adjacent characters; at most `limit` + 1.
int edit_distance(std::string_view a, std::string_view b, int limit);

// The candidate that other programs call by this name (launch/config/other_names.h: "learning_rate" -> "optim.lr"),
// else the nearest one that could be a typing error or that begins with the word ("keep" -> "keep_last"), else one with
// the same last part ("lr" -> "optim.lr"), else "".
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean X?", with what else to know of a name of other programs; or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
