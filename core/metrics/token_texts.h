// TokenTexts: how many bytes and words of text tokens stand for, by which losses of language models with other
// tokenizers are compared. Shared by the metrics of one rank; used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace lockstep {

class TokenTexts {
 public:
  // text_of(id): the bytes that a token of `count` stands for within a text; none of tokens that are no text. It is
  // called for each token at the first use.
  TokenTexts(int64_t count, std::function<std::string(int32_t id)> text_of)
      : count_(count), text_of_(std::move(text_of)) {}

  int64_t bytes(int32_t id) { return at(id).bytes; }
  // The words that begin in a token that follows `before`. A word is a longest run of bytes other than ASCII's white
  // space; behind a token that is no text a text begins.
  int64_t words(int32_t before, int32_t id) {
    const Counts& own = at(id);
    return own.words_within + (own.begins_in_word && !at(before).ends_in_word ? 1 : 0);
  }

 private:
  struct Counts {
    int32_t bytes = 0, words_within = 0;  // that begin behind a white space of the token itself
    bool begins_in_word = false, ends_in_word = false;
  };
  // Throws ExitCode::kInternal for an id out of range.
  const Counts& at(int32_t id);

  int64_t count_;
  std::function<std::string(int32_t id)> text_of_;
  std::vector<Counts> counts_;
};

}  // namespace lockstep
