// Pattern: a regular expression that splits text into the words within which byte pairs are merged. The one door to
// PCRE2. A Pattern is an immutable value that may be shared; a Matcher is the scratch memory of one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// What a pattern is for. One that is looked for in whole texts may ask what is before a match: ^, $, \b and \B.
enum class PatternUse : uint8_t { kSplitting, kWholeTexts };

class Pattern {
 public:
  // Takes the regular expressions of tokenizer.json as far as PCRE2 means the same by them: alternatives, groups,
  // classes, \p{..}, \s, \S, \d, \D, \r, \n, \t, lookahead, quantifiers. Throws ExitCode::kBadData naming `where` and
  // the part that is not supported: among others what looks behind, and what matches an empty text.
  Pattern(std::string text, std::string_view where, PatternUse use = PatternUse::kSplitting);
  const std::string& text() const { return text_; }
  int groups() const;  // in parentheses whose matches are kept

 private:
  friend class Matcher;
  struct Code;
  std::string text_;
  std::shared_ptr<const Code> code_;
};

// The pattern of a model family: "gpt2", "llama3" or "qwen2"; empty for another name.
std::string_view named_pattern(std::string_view name);

struct Match {
  size_t begin = 0, end = 0;
};

class Matcher {
 public:
  // Before the first find(): every text has a budget of steps of its own, which grows with its bytes.
  void begin_text(size_t bytes);
  // `groups`: of these groups in parentheses matches are kept, too.
  explicit Matcher(int groups = 0);
  Matcher(Matcher&&) noexcept;
  ~Matcher();
  enum class Result { kMatch, kNone, kNeedsMore };
  // The first match in `text`, which is valid UTF-8, at or after byte `from`. `more`: text may follow, and kNeedsMore
  // is returned where it could change the match. Throws ExitCode::kBadData where the text's budget is used up.
  Result find(const Pattern& pattern, std::string_view text, size_t from, bool more, Match& match);
  // Of the last match, what its groups matched, the first one first; empty where a group took no part.
  std::vector<std::string_view> groups(std::string_view text) const;

 private:
  struct Scratch;
  int run(const Pattern& pattern, std::string_view text, size_t from, bool more, bool only_there, uint32_t steps);
  int run_by_budget(const Pattern& pattern, std::string_view text, size_t from, bool more);
  std::unique_ptr<Scratch> scratch_;
  int64_t budget_ = 0;  // steps that are left
  int found_ = 0;       // groups of the last match that took part, and the whole
};

}  // namespace lockstep
