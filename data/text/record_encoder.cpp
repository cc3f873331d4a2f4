#include "data/text/record_encoder.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/pieces.h"
#include "data/text/tokenizer/word_pieces.h"

namespace lockstep {

RecordEncoder::RecordEncoder(const Vocabulary& vocabulary, std::vector<std::string> reserved)
    : vocabulary_(vocabulary), reserved_(std::move(reserved)) {
  if (vocabulary.pairs()) restart_pairs();
  for (const std::string& token : reserved_) reserved_ids_.push_back(vocabulary.special(token));
}

// A user-defined piece of SentencePiece is always found in a text.
void RecordEncoder::refuse_reserved(std::span<const int32_t> ids) const {
  for (size_t i = 0; i < reserved_.size(); ++i)
    require(std::find(ids.begin(), ids.end(), reserved_ids_[i]) == ids.end(), ExitCode::kBadData, "spells out ",
            reserved_[i], " in a message, and this tokenizer has no other tokens for that text; change the text");
}

void RecordEncoder::need_token(const std::string& text, std::string_view what) const {
  require(spells_all() || vocabulary_.special(text) >= 0, ExitCode::kUsage, what, " needs the token ", text,
          ", which is no added token of the tokenizer");
}

bool RecordEncoder::spells_all() const { return !vocabulary_.has_tokenizer(); }

size_t RecordEncoder::bytes_of(int32_t id) const {
  if (vocabulary_.pairs()) return vocabulary_.pairs()->bytes_of(id).size();
  return vocabulary_.level() == TextLevel::kByte ? 1
                                                 : to_utf8(vocabulary_.code_points()[static_cast<size_t>(id)]).size();
}

void RecordEncoder::encode_text(const std::string& text, const std::vector<uint8_t>& marks, std::vector<int32_t>& ids,
                                std::vector<uint8_t>& targets) {
  if (pairs_ && vocabulary_.pairs()->tables().nfc) {
    std::string normal;
    std::vector<uint8_t> normal_marks;
    for (size_t at = 0, end; at < text.size(); at = end) {
      end = next_boundary(text, at);
      const auto from = marks.begin() + static_cast<std::ptrdiff_t>(at),
                 to = marks.begin() + static_cast<std::ptrdiff_t>(end);
      normal += nfc(std::string_view(text).substr(at, end - at));
      normal_marks.resize(normal.size(), std::find(from, to, 1) != to);
    }
    return encode_normal(normal, normal_marks, ids, targets);
  }
  encode_normal(text, marks, ids, targets);
}

void RecordEncoder::encode_normal(const std::string& text, const std::vector<uint8_t>& marks, std::vector<int32_t>& ids,
                                  std::vector<uint8_t>& targets) {
  if (vocabulary_.pieces() || vocabulary_.words()) {
    for (const PieceModel::Token& token :
         vocabulary_.words() ? vocabulary_.words()->encode(text) : vocabulary_.pieces()->encode(text)) {
      // A token of no bytes belongs to what follows: a space in front of the text, or a character spelt in bytes.
      const size_t begin = std::min(token.begin, marks.size() - 1);
      const auto from = marks.begin() + static_cast<std::ptrdiff_t>(begin),
                 to = marks.begin() +
                      static_cast<std::ptrdiff_t>(std::min(marks.size(), std::max(token.end, begin + 1)));
      ids.push_back(token.id);
      targets.push_back(std::find(from, to, 1) != to);
    }
    return;
  }
  const size_t before = ids.size();
  if (pairs_) {
    try {
      pairs_->add(text, ids);
      pairs_->finish(ids);
    } catch (...) {
      restart_pairs();  // what it holds of this text must not come into the next one
      throw;
    }
  } else {
    const std::vector<int32_t> all = vocabulary_.encode(text);
    ids.insert(ids.end(), all.begin(), all.end());
  }
  size_t byte = 0;
  for (size_t i = before; i < ids.size(); ++i) {
    const size_t end = byte + bytes_of(ids[i]);
    check(end <= marks.size(), "the tokens of a text have more bytes than it");
    const auto from = marks.begin() + static_cast<std::ptrdiff_t>(byte),
               to = marks.begin() + static_cast<std::ptrdiff_t>(end);
    targets.push_back(std::find(from, to, 1) != to);
    byte = end;
  }
  check(byte == marks.size(), "the tokens of a text have ", byte, " bytes of ", marks.size());
}

void RecordEncoder::encode(const std::vector<TextPart>& parts, std::vector<int32_t>& ids,
                           std::vector<uint8_t>& targets) {
  std::string text;
  std::vector<uint8_t> marks;  // of its bytes
  const bool prefix_space = pairs_ && vocabulary_.pairs()->tables().prefix_space;
  const auto first = static_cast<std::ptrdiff_t>(targets.size());
  const auto put_around = [&](std::span<const int32_t> tokens) {
    ids.insert(ids.end(), tokens.begin(), tokens.end());
    targets.resize(ids.size());
  };
  put_around(vocabulary_.record_begin());
  const auto flush = [&] {
    const size_t before = ids.size();
    if (prefix_space && !text.empty() && text[0] != ' ') {
      text.insert(0, 1, ' ');
      marks.insert(marks.begin(), marks[0]);
    }
    if (!text.empty()) encode_text(text, marks, ids, targets);
    refuse_reserved(std::span(ids).subspan(before));
    text.clear();
    marks.clear();
  };
  for (const TextPart& part : parts) {
    if (part.special && !spells_all()) {
      flush();
      const int32_t token = vocabulary_.special(part.text);
      check(token >= 0, "the tokenizer has no token ", part.text);
      ids.push_back(token);
      targets.push_back(part.target);
    } else {
      text += part.text;
      marks.resize(text.size(), part.target);
    }
  }
  flush();
  const auto last = static_cast<std::ptrdiff_t>(targets.size());
  put_around(vocabulary_.record_end());
  // What is around the text is a target where some of it is one: it is nothing to be learnt by itself.
  if (std::find(targets.begin() + first, targets.end(), 1) == targets.end()) return;
  std::fill_n(targets.begin() + first, vocabulary_.record_begin().size(), 1);
  std::fill(targets.begin() + last, targets.end(), 1);
}

}  // namespace lockstep
