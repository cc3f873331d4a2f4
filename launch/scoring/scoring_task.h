// ScoringTask: a task file of lm-evaluation-harness, as far as it needs no Python: what of each document is asked of a
// model, and what its answer is measured by. Plain values and functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/io/json.h"
#include "data/text/jinja/template.h"
#include "data/text/tokenizer/pattern.h"

namespace lockstep {

enum class ScoringKind : uint8_t {
  kMultipleChoice,  // the choice that is most likely behind the text
  kLoglikelihood,   // how likely the target is behind the text
  kRolling,         // how likely the target is as a whole, a text of any length
  kGenerate         // what the model continues the text with
};
std::string_view to_text(ScoringKind kind);  // the harness's output_type

using Document = JsonObject;

// What a key such as doc_to_text says of a document: the name of a field, or a template.
class DocumentText {
 public:
  DocumentText() = default;
  // `where`: of the key, for messages. Throws ExitCode::kConfig for a template that is none.
  DocumentText(const std::string& text, std::string where);
  bool empty() const { return source_.empty(); }
  // The field as it is, or the template's text. Throws ExitCode::kBadData naming the key.
  jinja::Value of(const Document& document) const;

 private:
  std::string source_, where_;
  std::shared_ptr<const jinja::Template> template_;  // of what is no field of a document
};

// A step of filter_list: what is made of a generated text before it is compared.
struct AnswerFilter {
  enum class Kind : uint8_t { kRegex, kStrip, kLower };
  Kind kind = Kind::kStrip;
  std::shared_ptr<const Pattern> pattern = {};  // of kRegex: the match that counts is number `select`, from the end
  int64_t select = 0;                           // where it is below 0, and of that its first group with a text
  std::string fallback = "[invalid]";           // where there is none
};

struct ScoringMetric {
  std::string name;  // the harness's: acc, word_perplexity, exact_match, ...; behind a filter "exact_match,NAME"
  bool ignore_case = false, ignore_punctuation = false, ignore_numbers = false;  // of exact_match
  std::vector<std::string> ignored = {};  // likewise: regular expressions of what is left out on both sides
  std::vector<AnswerFilter> filters = {};
};

struct ScoringTask {
  std::string path, name;
  ScoringKind kind = ScoringKind::kMultipleChoice;
  std::vector<std::string> data, fewshot_data;  // files of JSON lines
  DocumentText description, text, target;
  DocumentText choices;                     // gives a document's list; or
  std::vector<std::string> listed_choices;  // the same ones of every document, as the task file lists them
  std::string target_delimiter = " ", fewshot_delimiter = "\n\n";
  int64_t shots = 0;           // examples in front of each document, the first of fewshot_data
  bool shots_of_data = false;  // these are the documents themselves, of which none is its own example
  std::vector<std::string> until;
  int64_t new_tokens = 256;
  std::vector<ScoringMetric> metrics;
};

// Throws ExitCode::kMissingInput for a file that is not there, and kConfig naming file and line for what is wrong or
// needs more than this: tasks of Python, of the hub, other metrics.
ScoringTask read_scoring_task(const std::string& path);
// A hash of the file and its data. Throws kMissingInput.
std::string identity_of(const ScoringTask& task);
// Of the files, in order. Throws ExitCode::kBadData naming file and line for what is no JSON object.
std::vector<Document> read_documents(const std::vector<std::string>& files);

// What is asked for one document.
struct Question {
  std::string context;
  // Of multiple choice: the choices as they are, for their lengths. Of others one: the target.
  std::vector<std::string> choices;
  std::vector<std::string> continuations;  // what is scored behind the context: choices behind the delimiter
  int64_t answer = -1;                     // of multiple choice, the choice that is right
};
// `shots`: the documents of task.fewshot_data. Throws ExitCode::kBadData naming the key of the task for a document that
// lacks what it asks for, for an answer that is not among its choices, and where there are too few examples.
Question question_of(const ScoringTask& task, const Document& document, const std::vector<Document>& shots);

// The figures of one document: by which the whole is averaged, in the order of ScoringTask::metrics.
struct DocumentFigure {
  double value = 0, weight = 1;
};
struct ContinuationScore {
  double log_probability = 0;
  bool greedy = false;  // each of its tokens is the most likely one
};
std::vector<DocumentFigure> figures_of(const ScoringTask& task, const Question& question,
                                       const std::vector<ContinuationScore>& scores, const std::string& generated);
// The metrics of all documents, each followed by NAME_stderr where it is a mean.
std::vector<std::pair<std::string, double>> totals_of(const ScoringTask& task,
                                                      const std::vector<std::vector<DocumentFigure>>& figures);

}  // namespace lockstep
