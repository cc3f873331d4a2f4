// The vocabulary of a run, a checkpoint, a dataset, or a file.
#pragma once

#include <memory>
#include <string>

#include "data/text/tokenizer/tokenizer_file.h"
#include "data/text/vocabulary.h"

namespace lockstep {

// What a file that is no dataset is: a tokenizer.json, or a text whose characters are the vocabulary.
enum class PlainFile { kJson, kText };

// `from`: a run directory, a checkpoint, a dataset, a file, or a folder with a tokenizer's files. Throws
// ExitCode::kBadData naming it where it has no vocabulary, and the errors of what reads it; with kRefuse also where it
// is a tokenizer.json with truncation or padding.
std::shared_ptr<const Vocabulary> find_vocabulary(const std::string& from, PlainFile file,
                                                  LengthRules rules = LengthRules::kIgnore);

}  // namespace lockstep
