// Options of the commands that read texts: which are encoded, and how.
#pragma once

#include <string>

#include "data/text/tokenizer/tokenizer_file.h"
#include "data/text/valid_text.h"
#include "launch/arguments/command_line.h"

namespace lockstep {

// --whole-texts, of commands that encode texts.
Option whole_texts_option();
LengthRules length_rules(const Arguments& arguments);

// --template-values, of commands that read conversations.
Option template_values_option(const std::string& readers = "");

// --invalid, of commands that read UTF-8.
Option invalid_option();
InvalidBytes invalid_bytes(const Arguments& arguments);

}  // namespace lockstep
