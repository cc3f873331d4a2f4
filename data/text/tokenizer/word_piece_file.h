// WordPiece tokenizers in files: tokenizer.json of the Hugging Face tokenizers library, and BERT's vocab.txt. Plain
// functions.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "data/text/tokenizer/tokenizer_file.h"
#include "data/text/tokenizer/word_pieces.h"

namespace lockstep {

// Both throw ExitCode::kBadData naming `where` and what is wrong or not supported: normalizers but BertNormalizer,
// pre-tokenizers but BertPreTokenizer, added tokens with single_word; with kRefuse a truncation or padding.
std::shared_ptr<const WordPieces> parse_word_piece_json(std::string_view text, std::string_view where,
                                                        LengthRules rules = LengthRules::kIgnore);
// A token a line; `config`: the text of tokenizer_config.json beside it, which says how text is normalised
// (do_lower_case, strip_accents, tokenize_chinese_chars); empty: as uncased BERT does. [CLS] and [SEP] are put around a
// record, where the vocabulary has both.
std::shared_ptr<const WordPieces> parse_vocab_txt(std::string_view text, std::string_view config,
                                                  std::string_view where);

std::string word_piece_json(const WordPieceTables& tables);  // on one line

}  // namespace lockstep
