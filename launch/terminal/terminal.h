// What the commands ask of a terminal. Plain functions.
#pragma once

namespace lockstep {

// Columns of the terminal that `fd` is, asked for anew since it may have been resized; 80 where it does not say.
int terminal_columns(int fd);

}  // namespace lockstep
