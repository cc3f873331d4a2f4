// The word somebody probably meant: nearest by edit distance, or the same name in another section.
// Plain functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Inserted, removed, replaced or swapped neighbouring characters; counts no further than `limit` + 1.
int edit_distance(std::string_view a, std::string_view b, int limit);

// The candidate that other programs call by this name ("learning_rate" -> "optim.lr"), else the nearest that is near
// enough to be a slip, one that goes on after the word ("keep" -> "keep_last"), else
// one with the same last part ("lr" -> "optim.lr"), else "".
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

// "; did you mean X?", or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace lockstep
