#include "data/text/tokenizer/word_pieces.h"

#include <algorithm>
#include <cstring>

#include "core/base/error.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/word_piece_file.h"
#include "data/text/vocabulary.h"

namespace lockstep {
namespace {

constexpr std::string_view kBlanks = " \t\n\r";  // no character combines with them, and all end a word

std::string normalised(std::string_view text, const BertRules& rules) {
  std::vector<PlacedCharacter> characters;
  bert_normalise(text, rules, 0, characters);
  std::string out;
  for (const PlacedCharacter& c : characters) out += to_utf8(c.code_point);
  return out;
}

}  // namespace

WordPieces::WordPieces(WordPieceTables tables, std::string_view where) : tables_(std::move(tables)) {
  require(can_normalise(), ExitCode::kBadData, where,
          ": is a WordPiece tokenizer, which this build does not support; install libutf8proc-dev and build again");
  const int64_t count = size();
  const auto refuse = [&](bool is, const auto&... what) { require(!is, ExitCode::kBadData, where, ": ", what...); };
  refuse(count == 0 || count > kMostBpeTokens, "has ", count, " tokens; 1 to ", kMostBpeTokens, " are supported");
  special_.resize(tables_.tokens.size());
  int32_t before = -1;
  for (const AddedToken& a : tables_.added) {
    refuse(a.id <= before || a.id >= count || tables_.tokens[static_cast<size_t>(a.id)] != a.text, "the added token ",
           quoted_token(a.text), " has the id ", a.id, ", which another token has or which leaves a gap");
    before = a.id;
    refuse(a.text.empty(), "the added token ", a.id, " is empty");
    special_[static_cast<size_t>(a.id)] = a.special;
  }
  for (const auto* list : {&tables_.around.before, &tables_.around.after})
    for (int32_t id : *list)
      refuse(id < 0 || id >= count || !is_special(id), "puts token ", id,
             " around a text, which is no special added token");
  refuse(tables_.prefix.empty(), "has an empty continuing_subword_prefix");
  refuse(tables_.longest_word < 1 || tables_.longest_word > 1 << 20,
         "has max_input_chars_per_word: ", tables_.longest_word, "; 1 to ", 1 << 20, " are supported");
  index(where);
  for (std::string_view name : {"[MASK]", "<mask>"})
    if (const int32_t id = special(name); mask_ < 0 && id >= 0 && is_special(id)) mask_ = id;
}

void WordPieces::index(std::string_view where) {
  const auto refuse = [&](bool is, const auto&... what) { require(!is, ExitCode::kBadData, where, ": ", what...); };
  std::vector<bool> model(tables_.tokens.size(), true);
  for (const AddedToken& a : tables_.added) {
    model[static_cast<size_t>(a.id)] = a.in_vocabulary;
    std::string text = a.normalized ? normalised(a.text, tables_.rules) : a.text;
    refuse(text.empty(), "the added token ", quoted_token(a.text), " is empty once it is normalised");
    any_normalized_ |= a.normalized;
    needs_whole_text_ |= a.text.find_first_of(kBlanks) != a.text.npos || text.find_first_of(kBlanks) != text.npos;
    begins_added_[static_cast<uint8_t>(text[0])] = true;
    sought_.push_back({std::move(text), &a});
  }
  std::stable_sort(sought_.begin(), sought_.end(),
                   [](const Sought& a, const Sought& b) { return a.text.size() > b.text.size(); });
  std::vector<LongestToken::Token> first, within;
  const std::string_view prefix = tables_.prefix;
  for (size_t i = 0; i < tables_.tokens.size(); ++i) {
    const std::string_view token = tables_.tokens[i];
    refuse(token.empty(), "token ", i, " is empty");
    if (!model[i]) continue;
    first.push_back({token, static_cast<int32_t>(i)});
    if (token.size() > prefix.size() && token.starts_with(prefix))
      within.push_back({token.substr(prefix.size()), static_cast<int32_t>(i)});
  }
  first_ = LongestToken(std::move(first));
  within_ = LongestToken(std::move(within));
  if (const auto* twice = first_.repeated())
    refuse(true, "token ", twice->id, ", ", quoted_token(twice->text), ", is there twice");
  const auto* unknown = first_.of(tables_.unknown);
  refuse(!unknown || unknown->text != tables_.unknown, "its unknown token, ", quoted_token(tables_.unknown),
         ", is not in its vocabulary");
  unknown_ = unknown->id;
}

int32_t WordPieces::special(std::string_view text) const {
  const auto found = std::find_if(tables_.added.begin(), tables_.added.end(), [&](auto& a) { return a.text == text; });
  return found == tables_.added.end() ? -1 : found->id;
}

// The first added token in `text` from byte `at` on, which becomes where it begins; of several there the longest.
const AddedToken* WordPieces::find_added(std::string_view text, size_t& at, bool special_tokens,
                                         bool normalized) const {
  for (; at < text.size(); ++at) {
    if (!begins_added_[static_cast<uint8_t>(text[at])]) continue;
    for (const Sought& s : sought_)
      if (s.token->normalized == normalized && (special_tokens || !s.token->special) &&
          text.substr(at).starts_with(s.text))
        return s.token;
  }
  return nullptr;
}

std::vector<WordPieces::Token> WordPieces::encode(std::string_view text, bool special_tokens) const {
  std::vector<Token> out;
  for (size_t begin = 0; begin < text.size();) {
    size_t at = begin;
    const AddedToken* found = find_added(text, at, special_tokens, false);
    // Between added tokens a text is read in parts that end at a blank, as far as added tokens are not looked for in
    // it.
    for (size_t part = begin, end; part < at; part = end) {
      end = any_normalized_ ? at : std::min(text.find_first_of(kBlanks, part), at);
      if (end == part && end < at) ++end;  // blanks alone are no tokens
      else encode_segment(text.substr(part, end - part), part, special_tokens, out);
    }
    begin = at;
    if (!found) break;
    out.push_back({found->id, at, at + found->text.size()});
    begin += found->text.size();
  }
  return out;
}

void WordPieces::encode_segment(std::string_view text, size_t at, bool special_tokens, std::vector<Token>& out) const {
  std::vector<PlacedCharacter> characters;
  bert_normalise(text, tables_.rules, at, characters);
  if (!any_normalized_) return encode_characters(characters, 0, characters.size(), out);
  std::string normal;
  std::vector<size_t> character_at;  // of each byte
  for (size_t i = 0; i < characters.size(); ++i) {
    normal += to_utf8(characters[i].code_point);
    character_at.resize(normal.size(), i);
  }
  character_at.push_back(characters.size());
  for (size_t begin = 0, found_at = 0; begin < normal.size(); begin = found_at) {
    found_at = begin;
    const AddedToken* found = find_added(normal, found_at, special_tokens, true);
    encode_characters(characters, character_at[begin], character_at[found_at], out);
    if (!found) break;
    const auto sought = std::find_if(sought_.begin(), sought_.end(), [&](auto& s) { return s.token == found; });
    const size_t end = found_at + sought->text.size();
    out.push_back({found->id, characters[character_at[found_at]].begin, characters[character_at[end - 1]].end});
    found_at = end;
  }
}

void WordPieces::encode_characters(const std::vector<PlacedCharacter>& text, size_t from, size_t to,
                                   std::vector<Token>& out) const {
  for (size_t begin = from; begin < to;) {
    if (is_white_space(text[begin].code_point)) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    if (!kind_of(text[begin].code_point).punctuation)
      while (end < to && !is_white_space(text[end].code_point) && !kind_of(text[end].code_point).punctuation) ++end;
    encode_word(&text[begin], end - begin, out);
    begin = end;
  }
}

void WordPieces::encode_word(const PlacedCharacter* word, size_t count, std::vector<Token>& out) const {
  const auto is_unknown = [&] { out.push_back({unknown_, word[0].begin, word[count - 1].end}); };
  if (static_cast<int64_t>(count) > tables_.longest_word) return is_unknown();
  std::string text;
  std::vector<size_t> character_at;  // of each byte
  for (size_t i = 0; i < count; ++i) {
    text += to_utf8(word[i].code_point);
    character_at.resize(text.size(), i);
  }
  const size_t before = out.size();
  for (size_t begin = 0; begin < text.size();) {
    const auto* found = (begin == 0 ? first_ : within_).of(std::string_view(text).substr(begin));
    if (!found) {
      out.resize(before);
      return is_unknown();
    }
    const size_t end = begin + found->text.size();
    out.push_back({found->id, word[character_at[begin]].begin, word[character_at[end - 1]].end});
    begin = end;
  }
}

std::string WordPieces::text_of(int32_t id) const {
  const std::string& token = tables_.tokens[static_cast<size_t>(id)];
  return token.starts_with(tables_.prefix) ? token.substr(tables_.prefix.size()) : " " + token;
}

std::string WordPieces::decode(const std::vector<int32_t>& ids) const {
  static constexpr std::pair<std::string_view, std::string_view> kShort[] = {
      {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
      {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) {
    std::string text = i > 0 ? text_of(ids[i]) : tables_.tokens[static_cast<size_t>(ids[i])];
    if (tables_.cleanup)
      for (const auto& [from, to] : kShort)
        for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size()))
          text.replace(at, from.size(), to);
    out += text;
  }
  return out;
}

const std::string& WordPieces::json() const {
  std::call_once(json_once_, [&] { json_ = word_piece_json(tables_); });
  return json_;
}

std::string first_difference(const WordPieces& there, const WordPieces& here) {
  const WordPieceTables &a = there.tables(), &b = here.tables();
  if (a == b) return "";
  if (std::string tokens = first_token_difference(a.tokens, b.tokens); !tokens.empty()) return tokens;
  if (!(a.rules == b.rules))
    return "the tokens are the same, but one of them normalises text in another way (lower case, accents)";
  return "the tokens are the same, but the added tokens, what a text is put between, or the limits of words differ";
}

}  // namespace lockstep
