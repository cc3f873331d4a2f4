// AskedTask: a task's questions, as tokens of a vocabulary, and what the scores of these make of each. Plain values and
// functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "data/text/tokenizer/bpe_tables.h"
#include "data/text/vocabulary.h"
#include "launch/scoring/score_requests.h"
#include "launch/scoring/scoring_task.h"

namespace lockstep {

struct AskedTask {
  ScoringTask task;
  std::vector<Question> questions;  // of each document
};
// Of task files. Throws what read_scoring_task() does, what question_of() does naming the document, and kConfig for two
// tasks of one name.
std::vector<AskedTask> asked_tasks(const std::vector<std::string>& paths);

// Turns texts into tokens as lm-evaluation-harness does.
class QuestionTokens {
 public:
  // `around`: the special tokens that the tokenizer of transformers puts around a text. Borrows the vocabulary.
  QuestionTokens(const Vocabulary& vocabulary, int64_t context, Surround around);

  // How a text is encoded, such as "<s>TEXT"; empty: without special tokens.
  const std::string& form() const { return form_; }

  // `continuation` behind `context`, cut on the left where they are longer than the model's context. Throws
  // ExitCode::kBadData where the continuation is empty, or longer than that by itself.
  ScoreRequest pair(const std::string& context, const std::string& continuation) const;
  // Windows of a whole text, of which each token is scored in one, special tokens around it too. None where it has no
  // token.
  std::vector<ScoreRequest> windows(const std::string& text) const;
  // A context that `added` tokens follow: its last ones.
  std::vector<int32_t> prompt(const std::string& context, int64_t added) const;

 private:
  // With the special tokens around it, unless it spells out `beginning` itself.
  std::vector<int32_t> encode(const std::string& text, const std::string& beginning) const;
  int32_t prefix_token() const;

  const Vocabulary& vocabulary_;
  const int64_t context_;
  const Surround around_;
  std::string bos_;     // the token that begins texts; empty: there is none
  std::string prefix_;  // that, or else the one that ends texts: before a text that nothing is before
  std::string form_;
};

// What is scored of documents [begin, end), and the continuation of each request.
struct AskedRequests {
  std::vector<ScoreRequest> requests;
  std::vector<std::pair<size_t, size_t>> places;  // the document behind `begin`, and its continuation

  // The scores of each document's continuations, from those of the requests.
  std::vector<std::vector<ContinuationScore>> sums(const AskedTask& asked, size_t begin, size_t end,
                                                   const std::vector<TokensScore>& scores) const;
};
// Throws ExitCode::kBadData naming the task and the document.
AskedRequests requests_of(const AskedTask& asked, size_t begin, size_t end, const QuestionTokens& tokens);

}  // namespace lockstep
