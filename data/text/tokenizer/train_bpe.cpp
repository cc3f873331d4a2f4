#include "data/text/tokenizer/train_bpe.h"

#include <algorithm>
#include <numeric>
#include <queue>
#include <unordered_map>
#include <unordered_set>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/device/thread_pool.h"
#include "data/text/tokenizer/word_splitter.h"

namespace lockstep {
namespace {

constexpr int64_t kReadBytes = 1 << 20;
constexpr size_t kTail = 64 << 10;  // where a place to cut is looked for first

using WordCounts = std::unordered_map<std::string, int64_t>;

// Counts words in several threads, which each take a block of text at a time.
class WordCounter {
 public:
  explicit WordCounter(const BpeTraining& o)
      : options_(o),
        patterns_{Pattern(std::string(named_pattern(o.pattern)), o.pattern)},
        pool_(o.threads),
        counts_(static_cast<size_t>(o.threads)) {}

  WordCounts count(const std::vector<std::string>& inputs) {
    int64_t total = 0, done = 0;
    for (const std::string& path : inputs) total += InputFile(path).size;
    for (const std::string& path : inputs) {
      const InputFile file(path);
      ValidText valid(options_.invalid, path, "; convert the file to UTF-8, or replace such bytes (--invalid replace)");
      std::string bytes, text;
      for (int64_t at = 0; at < file.size; at += static_cast<int64_t>(bytes.size())) {
        bytes.resize(static_cast<size_t>(std::min(kReadBytes, file.size - at)));
        file.read(at, bytes.data(), static_cast<int64_t>(bytes.size()));
        valid.add(bytes, text);
        cut(text);
        done += static_cast<int64_t>(bytes.size());
        if (options_.progress) options_.progress(done, total);
      }
      valid.finish(text);
      give(std::move(text));
    }
    run();
    for (size_t i = 1; i < counts_.size(); ++i) {
      for (const auto& [word, n] : counts_[i]) counts_[0][word] += n;
      counts_[i].clear();
    }
    return std::move(counts_[0]);
  }

 private:
  // Gives away the beginning of the text up to a letter that no letter follows: in all named patterns a word ends
  // there, whatever comes after.
  void cut(std::string& text) {
    if (text.size() < static_cast<size_t>(kReadBytes)) return;
    size_t from = text.size() - kTail;
    while ((static_cast<uint8_t>(text[from]) & 0xC0) == 0x80) --from;
    Match last;
    matcher_.begin_text(text.size());
    if (matcher_.find(end_of_word_, text, from, false, last) != Matcher::Result::kMatch &&
        matcher_.find(end_of_word_, text, 0, false, last) != Matcher::Result::kMatch)
      return;
    std::string rest = text.substr(last.end);
    text.resize(last.end);
    give(std::move(text));
    text = std::move(rest);
  }
  void give(std::string&& text) {
    blocks_.push_back(std::move(text));
    if (blocks_.size() == counts_.size()) run();
  }
  void run() {
    std::vector<std::exception_ptr> failures(blocks_.size());
    auto count = [&](int64_t begin, int64_t end) {
      for (size_t i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
        try {
          std::string key;
          WordSplitter(patterns_).split(blocks_[i], true, [&](std::string_view word) {
            key = word;
            ++counts_[i][key];
          });
        } catch (...) {
          failures[i] = std::current_exception();
        }
      }
    };
    pool_.run(static_cast<int64_t>(blocks_.size()), 1, count);
    for (const auto& f : failures)
      if (f) std::rethrow_exception(f);
    blocks_.clear();
  }

  const BpeTraining& options_;
  const std::vector<Pattern> patterns_;
  const Pattern end_of_word_{R"(\p{L}(?=\P{L}))", "the end of a word"};
  Matcher matcher_;
  ThreadPool pool_;
  std::vector<std::string> blocks_;  // one for each thread
  std::vector<WordCounts> counts_;
};

// Merges pairs. All words lie one after the other as symbols, linked to their neighbours; each pair knows where it
// occurs, so that a merge costs what it changes.
class Merger {
 public:
  Merger(const WordCounts& words, BpeTables& tables) : tables_(tables) {
    int32_t byte_ids[256];
    std::vector<uint8_t> bytes(256);
    std::iota(bytes.begin(), bytes.end(), uint8_t{0});
    std::sort(bytes.begin(), bytes.end(),
              [](uint8_t a, uint8_t b) { return alphabet_character(a) < alphabet_character(b); });
    for (size_t i = 0; i < 256; ++i) {
      byte_ids[bytes[i]] = static_cast<int32_t>(i);
      tables_.tokens.emplace_back(1, static_cast<char>(bytes[i]));
      ids_.emplace(tables_.tokens.back(), static_cast<int32_t>(i));
    }
    for (const auto& [word, count] : words) {
      if (word.size() < 2) continue;
      const int32_t first = narrow<int32_t>(symbols_.size());
      for (char c : word) {
        const int32_t at = narrow<int32_t>(symbols_.size());
        symbols_.push_back({byte_ids[static_cast<uint8_t>(c)], at > first ? at - 1 : -1, at + 1, count});
      }
      symbols_.back().after = -1;
      for (int32_t at = first; symbol(at).after >= 0; ++at) add(at, at + 1);
    }
    for (const auto& [pair, p] : pairs_) queue_.push({p.count, pair});
  }

  // False where no pair occurs twice.
  bool merge_most_frequent() {
    while (!queue_.empty()) {
      const Candidate best = queue_.top();
      queue_.pop();
      const auto found = pairs_.find(best.pair);
      if (found == pairs_.end()) continue;
      const int64_t count = found->second.count;
      if (count < 2) continue;
      if (count == best.count) return merge(best.pair), true;
      if (count < best.count) queue_.push({count, best.pair});  // it has become rarer since
    }
    return false;
  }

 private:
  struct Symbol {
    int32_t id, before, after;  // of the neighbours in the word: their indices, or -1
    int64_t count;              // of the word
  };
  struct Places {
    int64_t count = 0;
    std::vector<int32_t> at;  // of the left symbol; some of them may be out of date
  };
  struct Candidate {
    int64_t count;
    uint64_t pair;
    bool operator<(const Candidate& o) const { return count != o.count ? count < o.count : pair > o.pair; }
  };
  static uint64_t pair_of(int32_t left, int32_t right) {
    return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
  }
  Symbol& symbol(int32_t at) { return symbols_[static_cast<size_t>(at)]; }

  uint64_t add(int32_t left, int32_t right) {
    const uint64_t pair = pair_of(symbol(left).id, symbol(right).id);
    Places& p = pairs_[pair];
    p.count += symbol(left).count;
    p.at.push_back(left);
    return pair;
  }
  void remove(int32_t left, int32_t right) {
    const auto found = pairs_.find(pair_of(symbol(left).id, symbol(right).id));
    if (found != pairs_.end()) found->second.count -= symbol(left).count;
  }

  void merge(uint64_t pair) {
    const int32_t left = static_cast<int32_t>(pair >> 32), right = static_cast<int32_t>(pair & 0xFFFFFFFFu);
    std::vector<int32_t> places = std::move(pairs_.at(pair).at);
    pairs_.erase(pair);
    // The same bytes may be a token already, made of two others.
    const std::string joined = tables_.tokens[static_cast<size_t>(left)] + tables_.tokens[static_cast<size_t>(right)];
    const auto [token, is_new] = ids_.emplace(joined, static_cast<int32_t>(tables_.tokens.size()));
    if (is_new) tables_.tokens.push_back(joined);
    if (merged_.insert(pair).second) tables_.merges.emplace_back(left, right);
    std::sort(places.begin(), places.end());  // of overlapping ones, as in "aaa", the first counts
    std::unordered_set<uint64_t> grown;
    for (const int32_t at : places) {
      const int32_t next = symbol(at).after;
      if (symbol(at).id != left || next < 0 || symbol(next).id != right) continue;
      const int32_t before = symbol(at).before, after = symbol(next).after;
      if (before >= 0) remove(before, at);
      if (after >= 0) remove(next, after);
      symbol(at).id = token->second;
      symbol(at).after = after;
      symbol(next).id = -1;
      if (after >= 0) symbol(after).before = at;
      if (before >= 0) grown.insert(add(before, at));
      if (after >= 0) grown.insert(add(at, after));
    }
    for (const uint64_t p : grown) queue_.push({pairs_.at(p).count, p});
  }

  BpeTables& tables_;
  std::unordered_map<std::string, int32_t> ids_;
  std::vector<Symbol> symbols_;
  std::unordered_map<uint64_t, Places> pairs_;
  std::unordered_set<uint64_t> merged_;
  std::priority_queue<Candidate> queue_;
};

}  // namespace

BpeTables train_bpe(const std::vector<std::string>& inputs, const BpeTraining& o) {
  const int64_t special = static_cast<int64_t>(o.special.size());
  require(!named_pattern(o.pattern).empty(), ExitCode::kUsage, "there is no pattern '", o.pattern,
          "'; there are gpt2, llama3 and qwen2");
  require(o.vocabulary >= 256 + special && o.vocabulary <= kMostBpeTokens, ExitCode::kUsage, "a vocabulary of ",
          o.vocabulary, " tokens; ", 256 + special, " (the bytes and the special tokens) to ", kMostBpeTokens,
          " are possible");
  for (auto token = o.special.begin(); token != o.special.end(); ++token)
    require(std::find(o.special.begin(), token, *token) == token, ExitCode::kUsage, "the special token ", *token,
            " is given twice");
  check(o.threads > 0, "training with ", o.threads, " threads");
  BpeTables tables;
  Merger merger(WordCounter(o).count(inputs), tables);
  while (static_cast<int64_t>(tables.tokens.size()) < o.vocabulary - special && merger.merge_most_frequent()) continue;
  for (const std::string& text : o.special) {
    tables.added.push_back({static_cast<int32_t>(tables.tokens.size()), text, true, false});
    tables.tokens.push_back(text);
  }
  tables.patterns.emplace_back(named_pattern(o.pattern));
  return tables;
}

}  // namespace lockstep
