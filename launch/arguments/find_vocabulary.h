// The vocabulary that a command line names: of a run, a checkpoint, a dataset, or a file. Plain functions.
#pragma once

#include <memory>
#include <string>

#include "data/text/tokenizer/tokenizer_file.h"
#include "data/text/valid_text.h"
#include "data/text/vocabulary.h"
#include "launch/arguments/command_line.h"

namespace lockstep {

// What a file that is no dataset is: a tokenizer.json, or a text whose characters are the vocabulary.
enum class PlainFile { kJson, kText };

// `from`: a run directory, a checkpoint, a dataset, a file, or a folder with a tokenizer's files. Throws
// ExitCode::kBadData naming it where it has no vocabulary, and the errors of what reads it; with kRefuse also where it
// is a tokenizer.json with truncation or padding.
std::shared_ptr<const Vocabulary> find_vocabulary(const std::string& from, PlainFile file,
                                                  LengthRules rules = LengthRules::kIgnore);

// --whole-texts, of commands that encode texts.
Option whole_texts_option();
LengthRules length_rules(const Arguments& arguments);

// --template-values, of commands that read conversations.
Option template_values_option(const std::string& readers = "");

// --invalid, of commands that read UTF-8.
Option invalid_option();
InvalidBytes invalid_bytes(const Arguments& arguments);

}  // namespace lockstep
