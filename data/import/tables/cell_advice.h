// Which options of an import read texts of a column as numbers or dates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/samples/cell_form.h"

namespace lockstep {

// What most texts of a column are.
struct CellAdvice {
  int64_t texts = 0, numbers = 0;         // how many there are, and of them numbers as they stand
  std::string how = {};                   // "--thousands , reads such cells as numbers"; empty: no option reads most
  std::vector<std::string> samples = {};  // a few of those that it reads
};

// Of the different texts of column `name`, which are read by `form`. Numbers are those with signs between thousands,
// another decimal sign, signs of currencies or per cent, or units. A text before a number, as in class1, or behind few
// of them, as in 12B and 2x, makes a name.
CellAdvice advice_on(const std::vector<std::string_view>& texts, const std::string& name, const NumberForm& form);

// A text as a shell takes it in one word.
std::string shell_word(std::string_view text);

}  // namespace lockstep
