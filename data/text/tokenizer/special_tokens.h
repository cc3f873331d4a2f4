// The special tokens that transformers puts around a text by default (add_special_tokens), as the files of a folder
// say. Imports put none of them around a text but those of encoders (data/text/tokenizer/bpe_tables.h:Surround).
#pragma once

#include <string>

#include "data/text/tokenizer/bpe_tables.h"
#include "data/text/vocabulary.h"

namespace lockstep {

// With the tokenizer of a folder, which is `vocabulary`: those of the post-processor of tokenizer.json, whatever
// tokenizer_config.json says; without such a file what its add_bos_token and add_eos_token ask for. Throws
// ExitCode::kBadData naming the file where that holds what tokenizers of transformers do not.
Surround special_tokens_around(const std::string& folder, const Vocabulary& vocabulary);

}  // namespace lockstep
