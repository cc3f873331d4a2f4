// Text of any origin made fit for a terminal. Names, vocabularies and messages from files may hold sequences that move
// the cursor, change the title or hide what is printed. A plain function.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

enum class Lines { kKeep, kEscape };  // of '\n' and '\t'

// Control characters come as \n, \t, \xHH, or \uHHHH for those beyond ASCII (C1, and those that turn the direction of
// text); so do bytes that are no UTF-8, as \xHH. All else stays as it is; a backslash, too.
std::string escaped(std::string_view text, Lines lines = Lines::kKeep);

}  // namespace lockstep
