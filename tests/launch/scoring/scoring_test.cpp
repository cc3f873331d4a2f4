// Tasks of lm-evaluation-harness: what is asked of a document, and what an answer is measured by.
#include <gtest/gtest.h>

#include <cmath>

#include "launch/scoring/scoring_task.h"
#include "tests/support/files.h"

namespace lockstep::scoring_test {
namespace {

class Scoring : public ::testing::Test {
 protected:
  ScoringTask task(const std::string& kind, const std::string& more) {
    test::write_file(folder_ / "d.jsonl", "{\"a\": 1}\n");
    test::write_file(folder_ / "t.yaml",
                     "output_type: " + kind + "\ndataset_path: json\ndataset_kwargs: {data_files: d.jsonl}\n" + more);
    return read_scoring_task(folder_ / "t.yaml");
  }
  static Document document(const std::string& json) { return *parse_json_object(json); }

  test::TemporaryFolder folder_;
};

constexpr const char* kChoices = "doc_to_text: q\ndoc_to_choice: c\ndoc_to_target: a\n";

TEST_F(Scoring, AsksWhatTheTaskSays) {
  const Document d = document(R"({"q": "what? ", "c": ["x", "yes"], "a": "yes", "n": 0})");
  Question q = question_of(task("multiple_choice", kChoices), d, {});
  EXPECT_EQ(q.context, "what? ");
  EXPECT_EQ(q.continuations, (std::vector<std::string>{" x", " yes"}));
  EXPECT_EQ(q.answer, 1);
  // A template of a list, an index as a text, a description, and examples of which none is the document.
  const ScoringTask shots =
      task("multiple_choice",
           "doc_to_text: \"{{q | trim}}\\n\"\ndoc_to_choice: \"{{ [c[1], 'no'] }}\"\ndoc_to_target: \"{{n}}\"\n"
           "description: \"Say {{c[0]}}: \"\nnum_fewshot: 1\nfewshot_split: train\ntest_split: train\n"
           "target_delimiter: ''\nfewshot_delimiter: ';'\n");
  const Document other = document(R"({"q": "or?", "c": ["x", "so"], "a": "so", "n": 1})");
  q = question_of(shots, d, {d, other});
  EXPECT_EQ(q.context, "Say x: or?\nno;what?\n");
  EXPECT_EQ(q.continuations, (std::vector<std::string>{"yes", "no"}));
  EXPECT_EQ(q.answer, 0);
  test::expect_error(ExitCode::kBadData, {"num_fewshot: there are 0 examples of 1"},
                     [&] { question_of(shots, d, {d}); });
  q = question_of(task("multiple_choice", "doc_to_text: q\ndoc_to_choice: [\"{{q}}\", no]\ndoc_to_target: n\n"), d, {});
  EXPECT_EQ(q.choices, (std::vector<std::string>{"{{q}}", "no"})) << "what a task file lists is no template";
  q = question_of(task("loglikelihood", "doc_to_text: q\ndoc_to_target: \"{{a}}\"\n"), d, {});
  EXPECT_EQ(q.continuations, std::vector<std::string>{"yes"}) << "without a delimiter";
  test::expect_error(ExitCode::kBadData, {"doc_to_text: is the number 0"}, [&] {
    question_of(task("multiple_choice", "doc_to_text: n\ndoc_to_choice: c\ndoc_to_target: a\n"), d, {});
  });
}

TEST_F(Scoring, MeasuresAsTheHarnessDoes) {
  const ScoringTask choices =
      task("multiple_choice",
           std::string(kChoices) + "metric_list: [{metric: acc}, {metric: acc_norm}, {metric: acc_bytes}]\n");
  Question q;
  q.choices = {"ab", "\u00e9\u00e9\u00e9", "abcd"};  // 2, 3 and 4 characters, of 2, 6 and 4 bytes
  q.answer = 1;
  std::vector<std::vector<DocumentFigure>> all;
  all.push_back(figures_of(choices, q, {{-2.0, false}, {-2.4, false}, {-4.0, true}}, ""));
  EXPECT_EQ(all[0][0].value, 0) << "the first has the most";
  EXPECT_EQ(all[0][1].value, 1) << "a character -1, -0.8, -1";
  EXPECT_EQ(all[0][2].value, 1) << "a byte -1, -0.4, -1";
  all.push_back(figures_of(choices, q, {{-2.0, false}, {-2.0, false}, {-8.0, true}}, ""));
  EXPECT_EQ(all[1][0].value, 0) << "of equal ones the first";
  all.push_back(all[0]), all.push_back(all[0]);
  all[3][0].value = 1;
  const auto totals = totals_of(choices, all);
  ASSERT_EQ(totals.size(), 6u);
  EXPECT_EQ(totals[0], (std::pair<std::string, double>("acc", 0.25)));
  EXPECT_EQ(totals[1].first, "acc_stderr");
  EXPECT_DOUBLE_EQ(totals[1].second, 0.25);
}

TEST_F(Scoring, CountsWordsAndBytes) {
  const ScoringTask rolling = task("loglikelihood_rolling", "doc_to_text: ''\ndoc_to_target: t\n");
  Question q;
  q.choices = {" a\u00a0 b\n"};  // three runs of white space; 7 bytes
  const auto one = figures_of(rolling, q, {{-14, false}}, "");
  EXPECT_EQ(one[0].weight, 4);
  EXPECT_EQ(one[1].weight, 7);
  const auto totals = totals_of(rolling, {one});
  EXPECT_DOUBLE_EQ(totals[0].second, std::exp(3.5));
  EXPECT_DOUBLE_EQ(totals[1].second, std::exp(2.0));
  EXPECT_DOUBLE_EQ(totals[2].second, 2 / std::log(2.0));
}

TEST_F(Scoring, ComparesAnswersAsTheHarnessDoes) {
  const auto right = [&](const std::string& how, const std::string& said, const std::string& target) {
    const ScoringTask t =
        task("generate_until", "doc_to_text: q\ndoc_to_target: a\nmetric_list: [{metric: exact_match" + how + "}]\n");
    Question q;
    q.choices = {target};
    return figures_of(t, q, {}, said)[0].value == 1;
  };
  EXPECT_TRUE(right("", "a b", "a b"));
  EXPECT_FALSE(right("", " a", "a")) << "white space counts";
  EXPECT_FALSE(right("", "A", "a"));
  EXPECT_TRUE(right(", ignore_case: true", "\u00c9A", "\u00e9a"));
  EXPECT_TRUE(right(", ignore_punctuation: true", "a, b!", "a b"));
  EXPECT_TRUE(right(", ignore_numbers: true", "a1", "2a"));
  EXPECT_TRUE(right(", regexes_to_ignore: ['\\bthe\\b', ' +$']", "the a  ", " a"));
  EXPECT_FALSE(right(", regexes_to_ignore: ['\\bthe\\b']", "then", "n"));
}

TEST_F(Scoring, FiltersAnswersAsTheHarnessDoes) {
  const std::string head = "doc_to_text: q\ndoc_to_target: a\nmetric_list: [{metric: exact_match}]\nfilter_list:\n";
  const auto found = [&](const std::string& steps, const std::string& said) {
    const ScoringTask t = task("generate_until", head + "  - {name: one, filter: [" + steps + "]}\n");
    EXPECT_EQ(t.metrics.at(0).name, "exact_match,one");
    for (const char* answer : {"12", "7", "[invalid]", "x", "a", ""}) {
      Question q;
      q.choices = {answer};
      if (figures_of(t, q, {}, said)[0].value == 1) return std::string(answer);
    }
    return std::string("another");
  };
  EXPECT_EQ(found("{function: regex}, {function: take_first}", "so\n#### 12 or #### 7"), "12");
  EXPECT_EQ(found("{function: regex, group_select: -1}", "so\n#### 12 or #### 7"), "7");
  EXPECT_EQ(found("{function: regex}", "none"), "[invalid]");
  EXPECT_EQ(found("{function: regex, fallback: x}", "none"), "x");
  EXPECT_EQ(found("{function: regex, regex_pattern: '[0-9]+'}", "12 7"), "12");
  EXPECT_EQ(found("{function: regex, regex_pattern: '(b+)|(\\d+)', group_select: 1}", "bb 7"), "7");
  EXPECT_EQ(found("{function: regex, regex_pattern: '= ([^=]*)='}", "= 12 ="), "12") << "white space around it goes";
  EXPECT_EQ(found("{function: remove_whitespace}, {function: lowercase}", " A "), "a");
  const auto refused = [&](const std::string& steps, const std::string& what) {
    test::expect_error(ExitCode::kConfig, {what}, [&] { task("generate_until", head + steps); });
  };
  refused("  - {name: one, filter: [{function: majority_vote}]}\n", "majority_vote is none of regex");
  refused("  - {name: one, filter: [{function: regex, regex_pattern: '(a'}]}\n", "regex_pattern");
  refused("  - {name: one, filter: [{function: lowercase, group_select: 1}]}\n", "group_select: is not supported");
  refused("  - {name: one}\n", "has no key filter");
  test::expect_error(ExitCode::kConfig, {"filter_list: is for generate_until"}, [&] {
    task("loglikelihood", "doc_to_text: q\ndoc_to_target: a\nfilter_list: [{name: one, filter: []}]\n");
  });
  const ScoringTask t =
      task("generate_until", head + "  - {name: one, filter: [{function: regex, group_select: 3}]}\n");
  Question q;
  q.choices = {"1"};
  test::expect_error(ExitCode::kBadData, {"group_select 3: an answer has 1 matches"},
                     [&] { figures_of(t, q, {}, "#### 1"); });
}

}  // namespace
}  // namespace lockstep::scoring_test
