#include <algorithm>
#include <queue>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "data/text/tokenizer/bpe.h"
#include "data/text/tokenizer/normalizer.h"

namespace lockstep {
namespace {

constexpr size_t kShortWord = 48;       // bytes; longer words are merged by a heap, and not remembered
constexpr size_t kFirstSlots = 1 << 8;  // of the words that are remembered: powers of two; half of them are used
constexpr size_t kMostSlots = 1 << 17;

}  // namespace

BpeEncoder::BpeEncoder(const BytePairs& pairs, bool special_tokens, std::span<const std::string> reserved)
    : pairs_(pairs), splitter_(pairs.patterns_), known_(kFirstSlots) {
  for (const AddedToken& a : pairs.tables_.added) {
    if (a.special && !special_tokens) continue;
    if (std::find(reserved.begin(), reserved.end(), a.text) != reserved.end()) continue;
    added_.emplace(a.text, &a);
    begins_added_[static_cast<uint8_t>(a.text[0])] = true;
    if (std::find(lengths_.begin(), lengths_.end(), a.text.size()) == lengths_.end()) lengths_.push_back(a.text.size());
  }
  std::sort(lengths_.begin(), lengths_.end(), std::greater<>());
}

void BpeEncoder::add(std::string_view text, std::vector<int32_t>& ids, WordEnds* ends) {
  if (pairs_.tables_.nfc) {
    held_ += text;
    const size_t end = last_boundary(held_);
    text_ += nfc(std::string_view(held_).substr(0, end));
    held_.erase(0, end);
    require(held_.size() <= kLongestWord, ExitCode::kBadData, "holds more than ", kLongestWord >> 20,
            " MiB of text without a place where its normal form can be cut");
  } else {
    text_ += text;
  }
  drain(false, ids, ends);
  // What was encoded makes place at the end of a piece, once for all of it.
  text_.erase(0, begin_);
  searched_ -= std::min(searched_, begin_);
  before_ += static_cast<int64_t>(begin_);
  begin_ = 0;
}

void BpeEncoder::finish(std::vector<int32_t>& ids) {
  if (!held_.empty()) text_ += nfc(held_);
  held_.clear();
  drain(true, ids);
  restart();
}

std::string BpeEncoder::rest() const { return text_.substr(begin_) + held_; }

void BpeEncoder::restart() {
  held_.clear();
  text_.clear();
  begin_ = searched_ = 0;
  before_ = 0;
}

// The first added token that begins in [from, end) and the byte where it does; of several the longest.
const AddedToken* BpeEncoder::find_added(size_t from, size_t end, size_t& at) const {
  const std::string_view text = text_;
  for (at = from; at < end; ++at) {
    if (!begins_added_[static_cast<uint8_t>(text[at])]) continue;
    for (size_t length : lengths_) {
      if (length > text.size() - at) continue;
      const auto found = added_.find(text.substr(at, length));
      if (found != added_.end()) return found->second;
    }
  }
  return nullptr;
}

void BpeEncoder::drain(bool last, std::vector<int32_t>& ids, WordEnds* ends) {
  const WordSplitter::Use use = [&](std::string_view word) { encode_word(word, ids); };
  const WordSplitter::Ended ended = [&](size_t end) {
    ends->last = {before_ + static_cast<int64_t>(begin_ + end), ids.size()};
    if (ends->last.byte <= ends->most) ends->first.push_back(ends->last);
  };
  while (begin_ < text_.size()) {
    size_t end = text_.size();
    const AddedToken* found = nullptr;
    if (!added_.empty()) {
      // Near the end of an unfinished text a longer token may begin than can be seen yet.
      const size_t unseen = last ? 0 : lengths_[0] - 1;
      found = find_added(searched_, end - std::min(end, unseen), searched_);
      end = std::min(end, searched_);
      // The splitter takes whole characters.
      while (end > begin_ && end < text_.size() && (static_cast<uint8_t>(text_[end]) & 0xC0) == 0x80) --end;
    }
    begin_ += splitter_.split(std::string_view(text_).substr(begin_, end - begin_), last || found, use,
                              ends ? &ended : nullptr);
    if (!found) break;
    ids.push_back(found->id);
    begin_ = searched_ = searched_ + found->text.size();
    if (ends) ended(0);
  }
}

void BpeEncoder::encode_word(std::string_view word, std::vector<int32_t>& ids) {
  if (word.size() == 1) return ids.push_back(pairs_.byte_ids_[static_cast<uint8_t>(word[0])]);
  if (word.size() > kShortWord) {
    const int32_t whole = pairs_.tables_.ignore_merges ? pairs_.token_of(word) : -1;
    return whole >= 0 ? ids.push_back(whole) : merge_long(word, ids);
  }
  const uint64_t hash = hash64(word);
  for (size_t at = hash & (known_.size() - 1); known_[at].bytes > 0; at = (at + 1) & (known_.size() - 1)) {
    const Known& k = known_[at];
    if (k.hash != hash || k.bytes != word.size() || known_text_.compare(k.text, k.bytes, word) != 0) continue;
    ids.insert(ids.end(), known_ids_.data() + k.ids, known_ids_.data() + k.ids + k.count);
    return;
  }
  const size_t first = ids.size();
  const int32_t whole = pairs_.tables_.ignore_merges ? pairs_.token_of(word) : -1;
  if (whole >= 0) ids.push_back(whole);
  else merge_short(word, ids);
  remember(hash, word, std::span(ids).subspan(first));
}

void BpeEncoder::remember(uint64_t hash, std::string_view word, std::span<const int32_t> ids) {
  if (2 * known_count_ == known_.size()) {
    std::vector<Known> before(known_.size() < kMostSlots ? 2 * known_.size() : known_.size());
    before.swap(known_);
    if (before.size() < known_.size()) {
      for (const Known& k : before)
        if (k.bytes > 0) known_[free_entry(k.hash)] = k;
    } else {  // enough of them: begin anew
      known_count_ = 0;
      known_text_.clear();
      known_ids_.clear();
    }
  }
  known_[free_entry(hash)] = {hash, static_cast<uint32_t>(known_text_.size()), static_cast<uint32_t>(known_ids_.size()),
                              static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())};
  ++known_count_;
  known_text_ += word;
  known_ids_.insert(known_ids_.end(), ids.begin(), ids.end());
}

size_t BpeEncoder::free_entry(uint64_t hash) const {
  size_t at = hash & (known_.size() - 1);
  while (known_[at].bytes > 0) at = (at + 1) & (known_.size() - 1);
  return at;
}

// Looks for the lowest rank anew after each merge: fastest for the few symbols of nearly every word.
void BpeEncoder::merge_short(std::string_view word, std::vector<int32_t>& ids) {
  int32_t symbols[kShortWord];
  BytePairs::Merge merges[kShortWord];  // of each symbol with the next
  size_t count = word.size();
  for (size_t i = 0; i < count; ++i) symbols[i] = pairs_.byte_ids_[static_cast<uint8_t>(word[i])];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = pairs_.merge_of(symbols[i], symbols[i + 1]);
  while (count > 1) {
    const auto best =
        std::min_element(merges, merges + count - 1, [](auto& a, auto& b) { return a.rank < b.rank; });  // the leftmost
    if (best->rank == BytePairs::kNever) break;
    const size_t i = static_cast<size_t>(best - merges);
    symbols[i] = best->id;
    std::copy(symbols + i + 2, symbols + count, symbols + i + 1);
    std::copy(merges + i + 1, merges + count - 1, merges + i);
    --count;
    if (i > 0) merges[i - 1] = pairs_.merge_of(symbols[i - 1], symbols[i]);
    if (i + 1 < count) merges[i] = pairs_.merge_of(symbols[i], symbols[i + 1]);
  }
  ids.insert(ids.end(), symbols, symbols + count);
}

// The same by a heap of pairs: time grows with n log n.
void BpeEncoder::merge_long(std::string_view word, std::vector<int32_t>& ids) {
  struct Pair {
    int32_t rank, left, right, left_id, right_id, id;
    bool operator<(const Pair& o) const { return rank != o.rank ? rank > o.rank : left > o.left; }
  };
  const int32_t count = narrow<int32_t>(word.size());
  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (int32_t i = 0; i < count; ++i)
    symbols.push_back(
        {pairs_.byte_ids_[static_cast<uint8_t>(word[static_cast<size_t>(i)])], i - 1, i + 1 < count ? i + 1 : -1});
  const auto at = [&](int32_t i) -> Symbol& { return symbols[static_cast<size_t>(i)]; };
  std::priority_queue<Pair> queue;
  const auto consider = [&](int32_t left, int32_t right) {
    if (left < 0 || right < 0) return;
    const auto merge = pairs_.merge_of(at(left).id, at(right).id);
    if (merge.rank != BytePairs::kNever) queue.push({merge.rank, left, right, at(left).id, at(right).id, merge.id});
  };
  for (int32_t i = 0; i + 1 < count; ++i) consider(i, i + 1);
  while (!queue.empty()) {
    const Pair p = queue.top();
    queue.pop();
    // One of the two may have been merged with another neighbour.
    if (at(p.left).id != p.left_id || at(p.right).id != p.right_id || at(p.left).after != p.right) continue;
    at(p.left).id = p.id;
    at(p.left).after = at(p.right).after;
    at(p.right).id = -1;
    if (at(p.left).after >= 0) at(at(p.left).after).before = p.left;
    consider(at(p.left).before, p.left);
    consider(p.left, at(p.left).after);
  }
  for (int32_t i = 0; i >= 0; i = at(i).after) ids.push_back(at(i).id);
}

}  // namespace lockstep
