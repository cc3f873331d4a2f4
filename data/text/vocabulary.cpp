#include "data/text/vocabulary.h"

#include <algorithm>
#include <cstdio>

#include "core/base/error.h"
#include "data/text/chat_template.h"
#include "data/text/tokenizer/pieces.h"
#include "data/text/tokenizer/tokenizer_file.h"
#include "data/text/tokenizer/word_piece_file.h"
#include "data/text/valid_text.h"

namespace lockstep {

namespace {

constexpr std::string_view kWords = "wordpiece", kChat = "chat";

// What a token of a level is.
std::string_view tokens_of(TextLevel level) {
  return level == TextLevel::kByte    ? "bytes"
         : level == TextLevel::kChar  ? "characters"
         : level == TextLevel::kBpe   ? "byte pairs"
         : level == TextLevel::kWords ? kWords
                                      : "pieces of SentencePiece";
}

std::string valid_text(std::string_view text) {
  std::string valid;
  ValidText reader(InvalidBytes::kRefuse, "text to encode", "");
  reader.add(text, valid);
  reader.finish(valid);
  return valid;
}

constexpr std::string_view kPieces = "sentencepiece", kDigits = "0123456789abcdef";

std::string hexadecimal(std::string_view bytes) {
  std::string out;
  out.reserve(2 * bytes.size());
  for (const char c : bytes) (out += kDigits[static_cast<uint8_t>(c) >> 4]) += kDigits[c & 15];
  return out;
}

std::string bytes_of_digits(std::string_view digits) {
  std::string out;
  bool good = digits.size() % 2 == 0;
  for (size_t i = 0; good && i < digits.size(); i += 2) {
    const size_t high = kDigits.find(digits[i]), low = kDigits.find(digits[i + 1]);
    good = high != kDigits.npos && low != kDigits.npos;
    out += static_cast<char>(high << 4 | low);
  }
  require(good, ExitCode::kBadData, "the checkpoint's tokenizer is not written in hexadecimal digits");
  return out;
}

}  // namespace

std::string_view to_text(TextLevel level) {
  return level == TextLevel::kByte    ? "byte"
         : level == TextLevel::kChar  ? "char"
         : level == TextLevel::kBpe   ? "bpe"
         : level == TextLevel::kWords ? kWords
                                      : kPieces;
}

Vocabulary Vocabulary::bytes() { return {}; }

Vocabulary Vocabulary::chars(std::vector<uint32_t> code_points) {
  check(!code_points.empty() && std::is_sorted(code_points.begin(), code_points.end()) &&
            std::adjacent_find(code_points.begin(), code_points.end()) == code_points.end(),
        "a vocabulary's code points are sorted and differ");
  Vocabulary v;
  v.level_ = TextLevel::kChar;
  v.code_points_ = std::move(code_points);
  return v;
}

Vocabulary Vocabulary::byte_pairs(std::shared_ptr<const BytePairs> pairs) {
  check(pairs != nullptr, "a vocabulary of no byte pairs");
  Vocabulary v;
  v.level_ = TextLevel::kBpe;
  v.pairs_ = std::move(pairs);
  return v;
}

Vocabulary Vocabulary::pieces(std::shared_ptr<const PieceModel> model) {
  check(model != nullptr, "a vocabulary of no pieces");
  Vocabulary v;
  v.level_ = TextLevel::kPieces;
  v.pieces_ = std::move(model);
  return v;
}

Vocabulary Vocabulary::word_pieces(std::shared_ptr<const WordPieces> words) {
  check(words != nullptr, "a vocabulary of no word pieces");
  Vocabulary v;
  v.level_ = TextLevel::kWords;
  v.words_ = std::move(words);
  return v;
}

const Surround* Vocabulary::around() const {
  return words_ ? &words_->tables().around : pairs_ ? &pairs_->tables().around : nullptr;
}
std::span<const int32_t> Vocabulary::record_begin() const {
  return around() ? std::span<const int32_t>(around()->before) : std::span<const int32_t>();
}
std::span<const int32_t> Vocabulary::record_end() const {
  return around() ? std::span<const int32_t>(around()->after) : std::span<const int32_t>();
}
int32_t Vocabulary::mask() const {
  if (words_) return words_->mask();
  return pairs_ && !pairs_->tables().around.empty() ? special("<mask>") : -1;
}
bool Vocabulary::is_never_hidden(int32_t id) const {
  if (words_) return words_->is_special(id);
  if (!pairs_) return false;
  const std::vector<AddedToken>& added = pairs_->tables().added;
  const auto at = std::lower_bound(added.begin(), added.end(), id, [](auto& a, int32_t i) { return a.id < i; });
  return at != added.end() && at->id == id && at->special;
}

int32_t Vocabulary::special(std::string_view text) const {
  if (words_) return words_->special(text);
  if (pieces_) return pieces_->special(text);
  const AddedToken* token = pairs_ ? pairs_->added(text) : nullptr;
  return token ? token->id : -1;
}

std::vector<std::string> Vocabulary::special_texts() const {
  std::vector<std::string> out;
  if (pieces_)
    for (const PieceModel::Piece& p : pieces_->pieces())
      if (p.type == PieceModel::Type::kControl) out.push_back(p.text);
  if (pairs_ || words_)
    for (const AddedToken& t : pairs_ ? pairs_->tables().added : words_->tables().added)
      if (t.special) out.push_back(t.text);
  return out;
}

int64_t Vocabulary::size() const {
  if (words_) return words_->size();
  if (pieces_) return pieces_->size();
  if (pairs_) return pairs_->size();
  return level_ == TextLevel::kByte ? 256 : static_cast<int64_t>(code_points_.size());
}

int32_t Vocabulary::token_of(uint32_t code_point) const {
  auto it = std::lower_bound(code_points_.begin(), code_points_.end(), code_point);
  if (it == code_points_.end() || *it != code_point) return -1;
  return static_cast<int32_t>(it - code_points_.begin());
}

std::vector<int32_t> Vocabulary::encode(std::string_view text, bool special_tokens) const {
  std::vector<int32_t> tokens;
  tokens.reserve(text.size());
  if (level_ == TextLevel::kByte) {
    for (char c : text) tokens.push_back(static_cast<uint8_t>(c));
    return tokens;
  }
  if (pieces_) {
    const std::string whole = valid_text(text);
    for (std::string_view rest = whole; !rest.empty();) {
      const auto [at, special] = special_tokens ? pieces_->find_control(rest) : std::pair(rest.size(), -1);
      if (at > 0)
        for (const PieceModel::Token& token : pieces_->encode(rest.substr(0, at))) tokens.push_back(token.id);
      rest.remove_prefix(at);
      if (special < 0) break;
      tokens.push_back(special);
      rest.remove_prefix(pieces_->piece(special).text.size());
    }
    return tokens;
  }
  if (words_) {
    for (const WordPieces::Token& token : words_->encode(valid_text(text), special_tokens)) tokens.push_back(token.id);
    return tokens;
  }
  if (pairs_) {
    BpeEncoder encoder(*pairs_, special_tokens);
    const std::string valid = valid_text(text);
    encoder.add(pairs_->prepares(special_tokens) ? pairs_->prepared(valid, special_tokens) : valid, tokens);
    encoder.finish(tokens);
    return tokens;
  }
  Utf8Reader reader;
  for (size_t i = 0; i < text.size(); ++i) {
    auto result = reader.next(static_cast<uint8_t>(text[i]));
    require(result != Utf8Reader::Result::kInvalid, ExitCode::kBadData, "text to encode: invalid UTF-8 at byte ", i);
    if (result == Utf8Reader::Result::kMore) continue;
    int32_t token = token_of(reader.code_point());
    require(token >= 0, ExitCode::kBadData, "text to encode: character '", to_utf8(reader.code_point()),
            "' ending at byte ", i, " is not in the dataset's vocabulary of ", size(), " characters");
    tokens.push_back(token);
  }
  require(reader.between(), ExitCode::kBadData, "text to encode: ends within a UTF-8 character");
  return tokens;
}

std::string Vocabulary::decode(const std::vector<int32_t>& tokens) const {
  std::string text;
  for (int32_t token : tokens) {
    require(token >= 0 && token < size(), ExitCode::kBadData, "token ", token, " is not in a vocabulary of ", size());
    if (pairs_) text += pairs_->bytes_of(token);
    else if (pieces_) text += pieces_->text_of(token);
    else if (words_) text += words_->text_of(token);
    else if (level_ == TextLevel::kByte) text.push_back(static_cast<char>(token));
    else text += to_utf8(code_points_[static_cast<size_t>(token)]);
  }
  return text;
}

std::string Vocabulary::text_of(int32_t token) const {
  std::string text = decode({token});
  if (words_ && words_->is_special(token)) return "";
  if (pieces_ && pieces_->piece(token).type == PieceModel::Type::kUnknown) return "";
  if (pairs_) {
    const std::vector<AddedToken>& added = pairs_->tables().added;  // by id
    const auto at = std::lower_bound(added.begin(), added.end(), token, [](auto& a, int32_t id) { return a.id < id; });
    if (at != added.end() && at->id == token && at->special) return "";
  }
  return text;
}

std::string Vocabulary::decode_text(const std::vector<int32_t>& tokens) const {
  std::string text = decode(tokens);
  return pieces_ ? pieces_->decode(tokens) : words_ ? words_->decode(tokens) : text;
}

std::string first_difference(const Vocabulary& there, const Vocabulary& here) {
  if (there.level() != here.level())
    return str("tokens are ", tokens_of(there.level()), " there and ", tokens_of(here.level()), " here");
  if (there.pairs()) return first_difference(*there.pairs(), *here.pairs());
  if (there.words()) return first_difference(*there.words(), *here.words());
  if (there.pieces()) return there.pieces()->bytes() == here.pieces()->bytes() ? "" : "the SentencePiece models differ";
  const auto &a = there.code_points(), &b = here.code_points();
  const auto [x, y] = std::mismatch(a.begin(), a.end(), b.begin(), b.end());
  if (x == a.end() && y == b.end()) return "";
  const auto meaning = [](const auto& at, const auto& end) { return at == end ? "nothing" : character_text(*at); };
  return str("token ", x - a.begin(), " is ", meaning(x, a.end()), " there and ", meaning(y, b.end()),
             " here (vocabularies of ", there.size(), " and ", here.size(), " characters)");
}

std::string character_text(uint32_t c) {
  char number[16];
  std::snprintf(number, sizeof number, "U+%04X", c);
  return c < 32 || (c >= 127 && c < 160) ? std::string(number) : str("'", to_utf8(c), "' (", number, ")");
}

Utf8Reader::Result Utf8Reader::next(uint8_t byte) {
  if (missing_ == 0) {
    length_ = 1;
    if (byte < 0x80) return value_ = byte, Result::kCodePoint;
    if (byte >= 0xC2 && byte < 0xE0) {
      missing_ = 1, least_ = 0x80, value_ = byte & 0x1F;
    } else if (byte >= 0xE0 && byte < 0xF0) {
      missing_ = 2, least_ = 0x800, value_ = byte & 0x0F;
    } else if (byte >= 0xF0 && byte < 0xF5) {
      missing_ = 3, least_ = 0x10000, value_ = byte & 0x07;
    } else {
      return Result::kInvalid;
    }
    return Result::kMore;
  }
  ++length_;
  if ((byte & 0xC0) != 0x80) return Result::kInvalid;
  value_ = value_ << 6 | (byte & 0x3F);
  if (--missing_ > 0) return Result::kMore;
  bool surrogate = value_ >= 0xD800 && value_ < 0xE000;
  return value_ < least_ || surrogate || value_ > 0x10FFFF ? Result::kInvalid : Result::kCodePoint;
}

std::string to_utf8(uint32_t c) {
  auto tail = [](uint32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
  if (c < 0x80) return {static_cast<char>(c)};
  if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(c)};
  if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(c >> 6), tail(c)};
  return {static_cast<char>(0xF0 | c >> 18), tail(c >> 12), tail(c >> 6), tail(c)};
}

std::string vocabulary_text(const Vocabulary* v) {
  if (!v) return "";
  if (v->chat()) {
    Vocabulary alone = *v;
    alone.set_chat(nullptr);
    return str(kChat, v->chat()->text(), "\n", vocabulary_text(&alone));
  }
  if (v->level() == TextLevel::kByte) return "byte";
  if (v->pairs()) return "bpe" + v->pairs()->json();
  if (v->words()) return str(kWords, v->words()->json());
  if (v->pieces()) return str(kPieces, hexadecimal(v->pieces()->bytes()));
  std::vector<int32_t> all(static_cast<size_t>(v->size()));
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int32_t>(i);
  return "char" + v->decode(all);
}

std::unique_ptr<Vocabulary> parse_vocabulary(const std::string& text) {
  if (text.empty()) return nullptr;
  if (const size_t line = text.find('\n'); text.starts_with(kChat) && text[kChat.size()] == '{' && line != text.npos) {
    const std::string rest = text.substr(line + 1);
    auto out = rest.starts_with(kChat) ? nullptr : parse_vocabulary(rest);
    require(out != nullptr, ExitCode::kBadData, "a chat template goes with no vocabulary");
    out->set_chat(
        std::make_shared<const ChatSource>(ChatSource::parse(text.substr(kChat.size(), line - kChat.size()))));
    return out;
  }
  if (text == "byte") return std::make_unique<Vocabulary>(Vocabulary::bytes());
  if (text.starts_with("bpe"))
    return std::make_unique<Vocabulary>(
        Vocabulary::byte_pairs(parse_tokenizer_json(std::string_view(text).substr(3), "the checkpoint's tokenizer")));
  if (text.starts_with(kWords))
    return std::make_unique<Vocabulary>(Vocabulary::word_pieces(
        parse_word_piece_json(std::string_view(text).substr(kWords.size()), "the checkpoint's tokenizer")));
  if (text.starts_with(kPieces))
    return std::make_unique<Vocabulary>(Vocabulary::pieces(PieceModel::parse(
        bytes_of_digits(std::string_view(text).substr(kPieces.size())), "the checkpoint's tokenizer")));
  std::vector<uint32_t> code_points;
  Utf8Reader reader;
  bool good = text.starts_with("char") && text.size() > 4;
  for (size_t i = 4; good && i < text.size(); ++i) {
    const auto result = reader.next(static_cast<uint8_t>(text[i]));
    good = result != Utf8Reader::Result::kInvalid;
    if (result != Utf8Reader::Result::kCodePoint) continue;
    good = code_points.empty() || code_points.back() < reader.code_point();
    code_points.push_back(reader.code_point());
  }
  require(good && reader.between(), ExitCode::kBadData,
          "the checkpoint's vocabulary is not a list of characters in ascending order: its manifest was not written by "
          "lockstep");
  return std::make_unique<Vocabulary>(Vocabulary::chars(std::move(code_points)));
}

}  // namespace lockstep
