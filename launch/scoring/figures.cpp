// What a task's answers are measured by, as lm-evaluation-harness computes it.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "data/text/jinja/value.h"
#include "data/text/tokenizer/normalizer.h"
#include "data/text/tokenizer/pattern.h"
#include "data/text/vocabulary.h"
#include "launch/scoring/scoring_task.h"

namespace lockstep {
namespace {

constexpr int kMostGroups = 64;  // of an expression

// The first of the largest values.
size_t largest(const std::vector<double>& values) {
  return static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
}

double characters(const std::string& text) { return static_cast<double>(jinja::character_starts(text).size() - 1); }

// Parts between white space, as Python's re.split(r"\s+", text) counts them.
double words_of(const std::string& text) {
  const std::vector<size_t> starts = jinja::character_starts(text);
  int64_t gaps = 0;
  bool within = false;
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const bool space = jinja::is_python_space(jinja::character_at(text, starts[i]));
    gaps += space && !within;
    within = space;
  }
  return static_cast<double>(gaps + 1);
}

std::string without(const std::string& text, const std::string& expression) {
  const Pattern pattern(expression, "regexes_to_ignore", PatternUse::kWholeTexts);
  Matcher matcher;
  matcher.begin_text(text.size());
  std::string out;
  size_t at = 0;
  for (Match match; matcher.find(pattern, text, at, false, match) == Matcher::Result::kMatch; at = match.end)
    out += text.substr(at, match.begin - at);
  return out + text.substr(at);
}

// In the order of the harness: expressions, case, punctuation, digits.
std::string compared(std::string text, const ScoringMetric& how) {
  for (const std::string& expression : how.ignored) text = without(text, expression);
  std::string out;
  const std::vector<size_t> starts = jinja::character_starts(text);
  constexpr std::string_view kPunctuation = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~";  // Python's string.punctuation
  for (size_t i = 0; i + 1 < starts.size(); ++i) {
    const uint32_t c = jinja::character_at(text, starts[i]);
    const bool ascii = c < 0x80;
    if (how.ignore_punctuation && ascii && kPunctuation.find(static_cast<char>(c)) != kPunctuation.npos) continue;
    if (how.ignore_numbers && c >= '0' && c <= '9') continue;
    out += how.ignore_case ? to_utf8(lower_case(c)) : to_utf8(c);
  }
  return out;
}

// As Python's re.findall lists matches: each whole, or where the expression has groups, the first of them with a text.
std::string selected(const std::string& text, const AnswerFilter& f) {
  Matcher matcher(kMostGroups);
  matcher.begin_text(text.size());
  std::vector<std::string> found;
  Match match;
  for (size_t at = 0; matcher.find(*f.pattern, text, at, false, match) == Matcher::Result::kMatch; at = match.end) {
    const int64_t groups = f.pattern->groups();
    const std::vector<std::string_view> of_groups = matcher.groups(text);
    std::string own = groups == 0 ? text.substr(match.begin, match.end - match.begin) : "";
    for (int64_t g = 0; g < std::min<int64_t>(groups, kMostGroups) && own.empty(); ++g)
      own = of_groups[static_cast<size_t>(g)];
    found.push_back(groups > 1 && own.empty() ? f.fallback : own);
  }
  const auto count = static_cast<int64_t>(found.size());
  const int64_t i = f.select < 0 ? count + f.select : f.select;
  if (count == 0) return f.fallback;
  require(i >= 0 && i < count, ExitCode::kBadData, "group_select ", f.select, ": an answer has ", count, " matches of ",
          f.pattern->text());
  return jinja::stripped(jinja::Text(found[static_cast<size_t>(i)]), nullptr, jinja::Sides::kBoth).bytes;
}

std::string filtered(std::string text, const std::vector<AnswerFilter>& filters) {
  for (const AnswerFilter& f : filters) {
    switch (f.kind) {
      case AnswerFilter::Kind::kRegex: text = selected(text, f); break;
      case AnswerFilter::Kind::kStrip:
        text = jinja::stripped(jinja::Text(text), nullptr, jinja::Sides::kBoth).bytes;
        break;
      case AnswerFilter::Kind::kLower: text = compared(text, {.name = "", .ignore_case = true}); break;
    }
  }
  return text;
}

}  // namespace

std::vector<DocumentFigure> figures_of(const ScoringTask& task, const Question& q,
                                       const std::vector<ContinuationScore>& scores, const std::string& generated) {
  std::vector<double> sums, by_character, by_byte;
  for (size_t i = 0; i < scores.size(); ++i) {
    sums.push_back(scores[i].log_probability);
    by_character.push_back(sums[i] / characters(q.choices[i]));
    by_byte.push_back(sums[i] / static_cast<double>(q.choices[i].size()));
  }
  std::vector<DocumentFigure> out;
  for (const ScoringMetric& m : task.metrics) {
    const auto right = [&](const std::vector<double>& by) {
      return DocumentFigure{static_cast<int64_t>(largest(by)) == q.answer ? 1.0 : 0.0};
    };
    if (m.name == "exact_match" || m.name.starts_with("exact_match,"))
      out.push_back({compared(filtered(generated, m.filters), m) == compared(q.choices[0], m) ? 1.0 : 0.0});
    else if (m.name == "acc_norm") out.push_back(right(by_character));
    else if (m.name == "acc_bytes") out.push_back(right(by_byte));
    else if (m.name == "acc")
      out.push_back(task.kind == ScoringKind::kMultipleChoice ? right(sums)
                                                              : DocumentFigure{scores[0].greedy ? 1.0 : 0.0});
    else if (m.name == "perplexity") out.push_back({sums[0]});
    else if (m.name == "word_perplexity") out.push_back({sums[0], words_of(q.choices[0])});
    else out.push_back({sums[0], static_cast<double>(q.choices[0].size())});
  }
  return out;
}

std::vector<std::pair<std::string, double>> totals_of(const ScoringTask& task,
                                                      const std::vector<std::vector<DocumentFigure>>& figures) {
  std::vector<std::pair<std::string, double>> out;
  const auto n = static_cast<double>(figures.size());
  for (size_t m = 0; m < task.metrics.size(); ++m) {
    const std::string& name = task.metrics[m].name;
    double sum = 0, weights = 0, squares = 0;
    for (const auto& document : figures) sum += document[m].value, weights += document[m].weight;
    const double mean = sum / weights;
    if (name == "bits_per_byte") out.emplace_back(name, -mean / std::log(2.0));
    else if (name.ends_with("perplexity")) out.emplace_back(name, std::exp(-mean));
    else {
      out.emplace_back(name, mean);
      for (const auto& document : figures) squares += (document[m].value - mean) * (document[m].value - mean);
      const size_t comma = std::min(name.find(','), name.size());  // "exact_match_stderr,NAME"
      if (figures.size() > 1)
        out.emplace_back(name.substr(0, comma) + "_stderr" + name.substr(comma),
                         std::sqrt(squares / (n - 1)) / std::sqrt(n));
    }
  }
  return out;
}

}  // namespace lockstep
