#include "data/text/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <queue>

#include "core/base/error.h"
#include "data/text/vocabulary.h"

namespace lockstep {
namespace {

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}
size_t pair_hash(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return static_cast<size_t>(key ^ key >> 32);
}

// Bytes of white space, by Unicode, at the beginning or the end of a text.
size_t white_space_in(std::string_view text, bool at_begin) {
  size_t count = 0;
  Utf8Reader reader;
  size_t begin = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (reader.next(static_cast<uint8_t>(text[i])) != Utf8Reader::Result::kCodePoint) continue;
    const uint32_t c = reader.code_point();
    const bool space = (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
                       (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
                       c == 0x3000;
    if (at_begin && !space) return count;
    count = space ? count + (i + 1 - begin) : 0;
    begin = i + 1;
  }
  return count;
}

}  // namespace

BytePairs::BytePairs(BpeTables tables, std::string_view where) : tables_(std::move(tables)) {
  const auto refuse = [&](bool is, const auto&... what) { require(!is, ExitCode::kBadData, where, ": ", what...); };
  const std::vector<std::string>& tokens = tables_.tokens;
  refuse(tokens.empty() || size() > kMostBpeTokens, "has ", tokens.size(), " tokens; 1 to ", kMostBpeTokens,
         " are supported");
  std::vector<bool> model(tokens.size(), true);
  std::unordered_map<std::string_view, int32_t> texts;
  int32_t before = -1;
  for (const AddedToken& a : tables_.added) {
    refuse(a.id <= before || a.id >= size(), "the added token ", quoted_token(a.text), " has the id ", a.id,
           ", which another token has or which leaves a gap");
    before = a.id;
    refuse(a.text.empty() || !texts.emplace(a.text, a.id).second, "the added token ", a.id,
           " is empty or the same as another one");
    // Merging makes a token of bytes: the model's, where the file's alphabet writes them as the text itself.
    model[static_cast<size_t>(a.id)] = a.in_vocabulary && from_alphabet(a.text) == a.text;
  }
  ids_.reserve(tokens.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    refuse(tokens[i].empty(), "token ", i, " is empty");
    if (model[i])
      refuse(!ids_.emplace(tokens[i], static_cast<int32_t>(i)).second, "token ", i, ", ", quoted_token(tokens[i]),
             ", is there twice");
  }
  for (size_t b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_ids_[b] = token_of({&byte, 1});
    refuse(byte_ids_[b] < 0, "has no token for byte ", b, "; a byte-level tokenizer has one for each byte");
  }
  index_merges(where);
  for (const std::string& p : tables_.patterns) patterns_.emplace_back(p, where);
}

void BytePairs::index_merges(std::string_view where) {
  const auto& merges = tables_.merges;
  require(static_cast<int64_t>(merges.size()) <= 2 * kMostBpeTokens, ExitCode::kBadData, where, ": has ", merges.size(),
          " merges, which is too many");
  entries_.resize(std::bit_ceil(2 * merges.size() + 2));
  std::string joined;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merges[rank];
    check(left >= 0 && right >= 0 && left < size() && right < size(), "a merge of tokens that are none");
    joined.assign(bytes_of(left)).append(bytes_of(right));
    const int32_t id = token_of(joined);
    require(id >= 0, ExitCode::kBadData, where, ": merge ", rank, " makes ", quoted_token(joined),
            ", which is no token");
    const uint64_t key = pair_key(left, right);
    size_t at = pair_hash(key) & (entries_.size() - 1);
    for (; entries_[at].merge.id >= 0; at = (at + 1) & (entries_.size() - 1))
      require(entries_[at].pair != key, ExitCode::kBadData, where, ": merge ", rank, " of ",
              quoted_token(bytes_of(left)), " and ", quoted_token(bytes_of(right)), " is there twice");
    entries_[at] = {key, {static_cast<int32_t>(rank), id}};
  }
}

BytePairs::Merge BytePairs::merge_of(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (size_t at = pair_hash(key) & (entries_.size() - 1);; at = (at + 1) & (entries_.size() - 1)) {
    const Entry& entry = entries_[at];
    if (entry.merge.id < 0 || entry.pair == key) return entry.merge;
  }
}

int32_t BytePairs::token_of(std::string_view bytes) const {
  const auto found = ids_.find(bytes);
  return found == ids_.end() ? -1 : found->second;
}

const AddedToken* BytePairs::added(std::string_view text) const {
  const auto found = std::find_if(tables_.added.begin(), tables_.added.end(), [&](auto& a) { return a.text == text; });
  return found == tables_.added.end() ? nullptr : &*found;
}

bool BytePairs::prepares(bool special_tokens) const {
  const auto& added = tables_.added;
  return tables_.prefix_space ||
         (special_tokens && std::any_of(added.begin(), added.end(), [](auto& a) { return a.lstrip || a.rstrip; }));
}

std::string BytePairs::prepared(std::string_view text, bool special_tokens) const {
  std::string out;
  const auto put = [&](std::string_view part) {
    if (tables_.prefix_space && !part.empty() && part[0] != ' ') out += ' ';
    out += part;
  };
  for (const AddedToken* before = nullptr;;) {
    const AddedToken* found = nullptr;
    size_t at = text.size();
    for (size_t here = 0; special_tokens && here < text.size() && !found; ++here)
      for (const AddedToken& a : tables_.added)
        if (text.substr(here).starts_with(a.text) && (!found || a.text.size() > found->text.size()))
          at = here, found = &a;
    std::string_view part = text.substr(0, at);
    if (before && before->rstrip) part.remove_prefix(white_space_in(part, true));
    if (found && found->lstrip) part.remove_suffix(white_space_in(part, false));
    put(part);
    if (!found) return out;
    out += found->text;
    text.remove_prefix(at + found->text.size());
    before = found;
  }
}

std::string first_difference(const BytePairs& there, const BytePairs& here) {
  const BpeTables &a = there.tables(), &b = here.tables();
  if (a == b) return "";
  if (std::string tokens = first_token_difference(a.tokens, b.tokens); !tokens.empty()) return tokens;
  const auto [m, n] = std::mismatch(a.merges.begin(), a.merges.end(), b.merges.begin(), b.merges.end());
  if (m == a.merges.end() && n == b.merges.end() && a.ignore_merges != b.ignore_merges)
    return "the tokens are the same, but ignore_merges differs";
  if (m != a.merges.end() || n != b.merges.end())
    return str("the tokens are the same, but merge ", m - a.merges.begin(), " differs");
  if (a.prefix_space != b.prefix_space)
    return "the tokens are the same, but one of them puts a space before a text (add_prefix_space)";
  if (a.nfc != b.nfc) return "the tokens are the same, but one of them normalises text (NFC)";
  if (!(a.around == b.around)) return "the tokens are the same, but what a text is put between differs";
  if (a.patterns != b.patterns) return "the tokens are the same, but the patterns that split text into words differ";
  return "the tokens are the same, but the added tokens differ";
}

}  // namespace lockstep
