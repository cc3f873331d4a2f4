// Training of byte-level BPE tokenizers. Plain functions.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "data/text/tokenizer/bpe_tables.h"
#include "data/text/valid_text.h"

namespace lockstep {

struct BpeTraining {
  int64_t vocabulary = 0;                                // tokens to be made, with the 256 bytes and the special ones
  std::string pattern = "gpt2";                          // a name of named_pattern(): how text is split into words
  std::vector<std::string> special = {"<|endoftext|>"};  // they get the last ids
  InvalidBytes invalid = InvalidBytes::kRefuse;
  int threads = 1;
  std::function<void(int64_t done, int64_t total)> progress = {};  // of the inputs' bytes
};

// The tables that merging the most frequent pair of neighbours again and again gives, within the words of the inputs,
// each of which is a text of its own; of equally frequent pairs the one with the lowest ids is merged first. Counts are
// exact, so the result is a function of the inputs and the options alone, whatever `threads` is. Ends early, with fewer
// tokens, where no pair occurs twice. Memory grows with the number of different words. Throws ExitCode::kMissingInput,
// kBadData, kUsage.
BpeTables train_bpe(const std::vector<std::string>& inputs, const BpeTraining& options);

}  // namespace lockstep
