// What a task asks of a document.
#include <algorithm>
#include <charconv>

#include "core/base/error.h"
#include "data/text/jinja/value.h"
#include "launch/scoring/scoring_task.h"

namespace lockstep {
namespace {

using jinja::Text;
using jinja::Value;

std::string text_of_value(const Value& value) {
  try {
    return jinja::to_text(value).bytes;
  } catch (const jinja::Failure& failure) {
    throw Error(ExitCode::kBadData, failure.what);
  }
}

// A list that a field is, or that a template spells in Python's way or in JSON's.
std::vector<std::string> list_of(const Value& value, const std::string& key) {
  std::vector<std::string> out;
  const auto add = [&](const Value& list) {
    for (const Value& item : list.list()->items) out.push_back(text_of_value(item));
  };
  if (value.list()) {
    add(value);
  } else {
    // Python's spelling of a list of texts is one that templates read, too.
    const std::string text = text_of_value(value);
    require(text.starts_with('[') && text.ends_with(']'), ExitCode::kBadData, key,
            ": is no list: ", json_text_of(text).substr(0, 60));
    const jinja::Template list(str("{% for x in ", text, " %}{{ x | tojson }}\n{% endfor %}"),
                               jinja::Reading{.trims = false, .strict = true});
    const std::string lines = list.render({}, 0).text.bytes;
    for (size_t at = 0, end; (end = lines.find('\n', at)) != lines.npos; at = end + 1) {
      const auto one = parse_json_array("[" + lines.substr(at, end - at) + "]");
      require(one && one->size() == 1, ExitCode::kBadData, key, ": is no list of texts");
      const auto* string = std::get_if<std::string>(&one->front());
      out.push_back(string ? *string : json_text_of(one->front()));
    }
  }
  return out;
}

std::vector<std::string> choices_of(const ScoringTask& task, const Document& document) {
  if (!task.listed_choices.empty()) return task.listed_choices;
  std::vector<std::string> out = list_of(task.choices.of(document), "doc_to_choice");
  require(!out.empty(), ExitCode::kBadData, "doc_to_choice: the document has no choices");
  return out;
}

// The choice that is right: its number, or its text.
int64_t answer_of(const ScoringTask& task, const Document& document, const std::vector<std::string>& choices) {
  const Value target = task.target.of(document);
  const std::string text = text_of_value(target);
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool is_number = error == std::errc() && end == text.data() + text.size();
  if (target.integer() || is_number) {
    const auto count = static_cast<int64_t>(choices.size());
    require(number >= 0 && number < count, ExitCode::kBadData, "doc_to_target: the answer is choice ", number, " of ",
            count);
    return number;
  }
  const auto found = std::find(choices.begin(), choices.end(), text);
  require(found != choices.end(), ExitCode::kBadData, "doc_to_target: the answer ", json_text_of(text).substr(0, 60),
          " is not among its choices");
  return found - choices.begin();
}

}  // namespace

namespace {

// The examples in front of a document: the first ones that are not it.
std::string examples_for(const ScoringTask& task, const Document& document, const std::vector<Document>& shots) {
  std::string out;
  int64_t count = 0;
  for (const Document& shot : shots) {
    if (count == task.shots) break;
    if (task.shots_of_data && shot == document) continue;
    ++count;
    out += text_of_value(task.text.of(shot));
    std::string answer;
    if (task.kind == ScoringKind::kMultipleChoice) {
      const std::vector<std::string> choices = choices_of(task, shot);
      answer = choices[static_cast<size_t>(answer_of(task, shot, choices))];
    } else {
      answer = text_of_value(task.target.of(shot));
    }
    if (!answer.empty()) out += task.target_delimiter + answer + task.fewshot_delimiter;
  }
  require(count == task.shots, ExitCode::kBadData, "num_fewshot: there are ", count, " examples of ", task.shots);
  return out;
}

}  // namespace

Question question_of(const ScoringTask& task, const Document& document, const std::vector<Document>& shots) {
  Question out;
  const Value text = task.text.of(document);
  const std::string own = text_of_value(text);
  const bool digits = !own.empty() && own.find_first_not_of("0123456789") == own.npos;
  require(task.kind != ScoringKind::kMultipleChoice || !digits, ExitCode::kBadData, "doc_to_text: is the number ", own,
          ", by which the harness chooses among contexts; such tasks are not supported");
  out.context = text_of_value(task.description.of(document)) + examples_for(task, document, shots) + own;
  switch (task.kind) {
    case ScoringKind::kMultipleChoice:
      out.choices = choices_of(task, document);
      out.answer = answer_of(task, document, out.choices);
      for (const std::string& choice : out.choices) out.continuations.push_back(task.target_delimiter + choice);
      break;
    case ScoringKind::kLoglikelihood:
      out.choices = {text_of_value(task.target.of(document))};
      out.continuations = out.choices;  // which begin with the space that they need
      break;
    case ScoringKind::kRolling:
      out.choices = out.continuations = {text_of_value(task.target.of(document))};
      out.context.clear();
      break;
    case ScoringKind::kGenerate: out.choices = {text_of_value(task.target.of(document))}; break;
  }
  return out;
}

}  // namespace lockstep
