// WordSplitter: splits a stream of text into words by patterns, as if the text were split at once, holding the last
// block and the word under way. Owned and used by one thread; borrows its patterns.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/text/tokenizer/pattern.h"

namespace lockstep {

// A longer word is refused: it would take memory without bound.
constexpr size_t kLongestWord = 16 << 20;

class WordSplitter {
 public:
  using Use = std::function<void(std::string_view word)>;
  explicit WordSplitter(const std::vector<Pattern>& patterns) : patterns_(patterns) {}
  // Hands on the words of `text` that no text after it can change, and returns their bytes, a prefix of the text. With
  // `last`, no text follows: all words. What no pattern matches is a word, too. Throws ExitCode::kBadData for a word of
  // more than kLongestWord bytes. `ended`, where it is given, is called with the end of each match of the first
  // pattern, in bytes of the text, after its words: what follows is split the same way if the text begins there.
  using Ended = std::function<void(size_t end)>;
  size_t split(std::string_view text, bool last, const Use& use, const Ended* ended = nullptr);

 private:
  void split_word(std::string_view word, size_t level, const Use& use);

  const std::vector<Pattern>& patterns_;
  Matcher matcher_;
};

}  // namespace lockstep
