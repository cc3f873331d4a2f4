// A table in plain text. A plain function.
#pragma once

#include <string>
#include <vector>

namespace lockstep {

// Rows of equally many cells, the heading first: the first column begins at the left, the others end at the right.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace lockstep
