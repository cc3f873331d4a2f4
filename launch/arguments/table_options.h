// What the options of the command line say of a file that holds a table. Plain functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/import/import.h"
#include "data/text/valid_text.h"
#include "launch/arguments/command_line.h"

namespace lockstep {

// Of --encoding and --delimiter (0: none is given). Throw ExitCode::kUsage for other values.
TextEncoding encoding_of(const Arguments& arguments);
char delimiter_of(const Arguments& arguments);
// Of --thousands: 0 for `none`, nothing where it is not given. Throws kUsage for what is no such sign.
std::optional<char> thousands_of(const Arguments& arguments);
Option thousands_option(const std::string& formats);  // `formats`: what the help text begins with
// The options of imports that say how cells are numbers or dates.
std::vector<Option> cell_options();

// Refuses options that need --text, which is not given; `format`: of the import, for messages. Throws kUsage.
void refuse_text_options(const Arguments& arguments, const std::string& format);
// What an import of a table without --text reads of it. Throws kUsage.
TableOptions table_columns(const Arguments& arguments, const std::string& format);

}  // namespace lockstep
