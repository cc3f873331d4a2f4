#include "data/text/tokenizer/word_splitter.h"

#include "core/base/error.h"

namespace lockstep {
namespace {

void require_short(size_t bytes) {
  require(bytes <= kLongestWord, ExitCode::kBadData, "the text has a word of more than ", kLongestWord,
          " bytes: nothing in it is a place to split it");
}

}  // namespace

size_t WordSplitter::split(std::string_view text, bool last, const Use& use, const Ended* ended) {
  size_t done = 0;
  matcher_.begin_text(text.size());
  while (done < text.size()) {
    Match match;
    const auto result =
        patterns_.empty() ? Matcher::Result::kNone : matcher_.find(patterns_[0], text, done, !last, match);
    if (result == Matcher::Result::kMatch) {
      if (match.begin > done) split_word(text.substr(done, match.begin - done), 1, use);
      split_word(text.substr(match.begin, match.end - match.begin), 1, use);
      done = match.end;
    } else if (last) {
      split_word(text.substr(done), 1, use);
      done = text.size();
    } else {
      require_short(text.size() - done);
      break;
    }
    if (ended) (*ended)(done);
  }
  return done;
}

void WordSplitter::split_word(std::string_view word, size_t level, const Use& use) {
  if (level >= patterns_.size()) {
    require_short(word.size());
    return use(word);
  }
  for (size_t done = 0; done < word.size();) {
    Match match;
    if (matcher_.find(patterns_[level], word, done, false, match) != Matcher::Result::kMatch)
      match = {word.size(), word.size()};
    if (match.begin > done) split_word(word.substr(done, match.begin - done), level + 1, use);
    if (match.end > match.begin) split_word(word.substr(match.begin, match.end - match.begin), level + 1, use);
    done = match.end;
  }
}

}  // namespace lockstep
