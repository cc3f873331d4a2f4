// Tokenizers in files: tokenizer.json of the Hugging Face tokenizers library, as far as it describes byte-level BPE,
// and GPT-2's two tables. Plain functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "data/text/tokenizer/bpe.h"
#include "data/text/vocabulary.h"

namespace lockstep {

// What becomes of the truncation and padding that a tokenizer.json asks for: neither is ever applied.
enum class LengthRules : uint8_t {
  kRefuse,  // texts are to be encoded, and the ids would not be those of the package
  kIgnore   // texts are encoded whole, or none is
};

// All throw ExitCode::kBadData naming `where` and what is wrong or not supported: other models than byte-level BPE,
// normalizers but NFC, dropout, byte_fallback, patterns that data/text/tokenizer/pattern.h refuses, ids with gaps,
// tokens or merges that are there twice, merges of unknown tokens; with kRefuse a truncation or padding.
// Post-processors are ignored: nothing is put around a text.
std::shared_ptr<const BytePairs> parse_tokenizer_json(std::string_view text, std::string_view where,
                                                      LengthRules rules = LengthRules::kIgnore);
// vocabulary: {"token": id, ...}; merges: "left right" a line. Splits text as GPT-2 does. A token that is neither a
// byte nor made by a merge, such as <|endoftext|>, is special.
std::shared_ptr<const BytePairs> parse_tables(std::string_view vocabulary, std::string_view merges,
                                              std::string_view where);

// From a tokenizer.json, or a folder with that file, with encoder.json and vocab.bpe, or with vocab.json and
// merges.txt. Throws kMissingInput where there is none.
std::shared_ptr<const BytePairs> read_tokenizer(const std::string& path, LengthRules rules = LengthRules::kIgnore);

bool has_tokenizer_files(const std::string& folder);
// The same, or a SentencePiece model, tokenizer.model, which is read where there is no tokenizer.json, or BERT's
// vocab.txt, which is read where there is neither (data/text/tokenizer/word_piece_file.h).
bool has_tokenizer(const std::string& folder);
// Of such a folder, with its chat template, or one of its files, *.json, *.model or *.txt.
Vocabulary vocabulary_of_tokenizer(const std::string& path, LengthRules rules = LengthRules::kIgnore);

// As tokenizer.json, on one line: equal tokenizers give equal texts.
std::string tokenizer_json(const BpeTables& tables);

}  // namespace lockstep
