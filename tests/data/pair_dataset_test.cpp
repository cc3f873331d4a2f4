// Pairs of answers: where answers begin, what a row holds, what is cut, left out and refused.
#include "data/samples/text/pair_dataset.h"

#include <gtest/gtest.h>

#include "core/base/ignore_index.h"
#include "data/import/import.h"
#include "data/streams/open_dataset.h"
#include "tests/support/files.h"

namespace lockstep::pair_dataset_test {
namespace {

using test::expect_error;
using test::write_file;

struct Marked {
  std::vector<int32_t> tokens;
  std::vector<uint8_t> targets;
  PairedRecord record() const { return {tokens, targets}; }
};

AnswerStarts starts(const Marked& chosen, const Marked& rejected) {
  return starts_of_answers(chosen.record(), rejected.record());
}

TEST(StartsOfAnswers, AreBehindThePrompt) {
  const AnswerStarts plain = starts({{1, 2, 3, 4}, {0, 0, 1, 1}}, {{1, 2, 5}, {0, 0, 1}});
  EXPECT_EQ(plain.chosen, 2);
  EXPECT_EQ(plain.rejected, 2);
  // An earlier turn that both have is a part of the prompt; a last one is an answer, even if both say the same.
  const AnswerStarts turns = starts({{1, 2, 3, 4}, {0, 1, 0, 1}}, {{1, 2, 3, 5, 6}, {0, 1, 0, 1, 1}});
  EXPECT_EQ(turns.chosen, 3);
  EXPECT_EQ(turns.rejected, 3);
  const AnswerStarts same = starts({{1, 2, 3}, {0, 1, 1}}, {{1, 2, 3}, {0, 1, 1}});
  EXPECT_EQ(same.chosen, 1);
  EXPECT_EQ(same.rejected, 1);
  // Conversations that part in an earlier turn.
  const AnswerStarts apart = starts({{1, 2, 3, 4}, {0, 1, 0, 1}}, {{1, 9, 8, 5}, {0, 1, 0, 1}});
  EXPECT_EQ(apart.chosen, 1);
  EXPECT_EQ(apart.rejected, 1);
  // A token in which the prompt's end and the answer's beginning are one.
  const AnswerStarts joined = starts({{1, 2, 3}, {0, 1, 1}}, {{1, 2, 7}, {0, 0, 1}});
  EXPECT_EQ(joined.chosen, 1);
  EXPECT_EQ(joined.rejected, 2);
}

TEST(StartsOfAnswers, RefuseOtherPromptsAndNoAnswer) {
  expect_error(ExitCode::kBadData, {"the prompts of its chosen and its rejected answer differ"}, [] {
    starts({{1, 2, 3}, {0, 0, 1}}, {{1, 4, 3}, {0, 0, 1}});
  });
  expect_error(ExitCode::kBadData, {"the rejected answer has no token that is a target"}, [] {
    starts({{1, 2, 3}, {0, 0, 1}}, {{1, 2, 3}, {0, 0, 0}});
  });
}

class PairDatasetTest : public ::testing::Test {
 protected:
  Datasets open(int64_t context, const std::string& lines, DataOptions o = {}) {
    write_file(folder_ / "in.jsonl", lines);
    out_ = folder_ / "out.h5";
    import_json({folder_ / "in.jsonl"}, out_, {.prompt = "q", .chosen = "yes", .rejected = "no"}, 0, {.force = true});
    o.path = out_, o.context = context, o.packing = Packing::kPairs, o.measured = DataPart::kAll;
    return open_datasets(o, 1);
  }
  test::TemporaryFolder folder_;
  std::string out_;
};

struct Row {
  std::vector<int32_t> tokens, documents, positions, next, answers;
};
Row row_of(const Dataset& data, int64_t index) {
  const auto width = static_cast<size_t>(data.spec().units);
  Row out;
  std::vector<void*> memory;
  for (auto* one : {&out.tokens, &out.documents, &out.positions, &out.next, &out.answers}) {
    one->resize(width);
    memory.push_back(one->data());
  }
  data.read(0, index, {data.spec().tensors, memory});
  return out;
}
using Ids = std::vector<int32_t>;

const char* const kTwo = R"({"q": "ab", "yes": "cd", "no": "e"}
{"q": "a", "yes": "b", "no": "cdef"}
)";

TEST_F(PairDatasetTest, RowsHoldBothAnswersAsDocuments) {
  const Datasets data = open(4, kTwo);
  const DataSpec& spec = data.train->spec();
  EXPECT_EQ(spec.units, 8);
  EXPECT_EQ(spec.model_input(), (Shape{4}));
  EXPECT_EQ(spec.long_records, 0);
  EXPECT_EQ(spec.targets(), 1);
  ASSERT_EQ(data.train->size(), 2);
  const Row row = row_of(*data.train, 0);
  EXPECT_EQ(row.tokens, (Ids{'a', 'b', 'c', 'a', 'b', 0, 0, 0}));
  EXPECT_EQ(row.documents, (Ids{0, 0, 0, 1, 1, 2, 2, 2}));
  EXPECT_EQ(row.positions, (Ids{0, 1, 2, 0, 1, 0, 0, 0}));
  EXPECT_EQ(row.next, (Ids{'b', 'c', 'd', 'b', 'e', kIgnoreIndex, kIgnoreIndex, kIgnoreIndex}));
  EXPECT_EQ(row.answers, (Ids{0, 1, 1, 0, 1, 0, 0, 0}));
  EXPECT_EQ(data.train->length(0, 0), 5);
  EXPECT_EQ(data.train->length(0, 1), 5);
}

TEST_F(PairDatasetTest, EndsBeyondTheContextAreCut) {
  const Datasets data = open(2, kTwo);
  EXPECT_EQ(data.train->spec().long_records, 2);
  EXPECT_EQ(data.train->spec().longest_record, 5);
  ASSERT_EQ(data.train->size(), 2);
  EXPECT_EQ(row_of(*data.train, 0).next, (Ids{'b', 'c', 'b', 'e'}));
  EXPECT_EQ(row_of(*data.train, 1).next, (Ids{'b', 'c', 'd', kIgnoreIndex}));
  // A context that a prompt fills leaves its pair out.
  const Datasets fewer = open(1, kTwo);
  ASSERT_EQ(fewer.train->size(), 1);
  EXPECT_EQ(row_of(*fewer.train, 0).next, (Ids{'b', 'c'}));
  expect_error(ExitCode::kConfig, {"data.context is 1, but in none of 1 pairs", "prompts fill it"},
               [&] { open(1, R"({"q": "ab", "yes": "cd", "no": "e"})"); });
}

TEST_F(PairDatasetTest, IgnoredTokensDoNotCount) {
  const Datasets data = open(4, kTwo, {.ignore_tokens = {'c'}});
  EXPECT_EQ(row_of(*data.train, 0).answers, (Ids{0, 0, 1, 0, 1, 0, 0, 0}));
  // One within an answer leaves the answer's beginning where it is; a pair with nothing else is left out.
  const Datasets within = open(5, R"({"q": "q", "yes": "aaXc", "no": "aaXd"}
{"q": "q", "yes": "ab", "no": "X"})",
                               {.ignore_tokens = {'X'}});
  ASSERT_EQ(within.train->size(), 1);
  EXPECT_EQ(row_of(*within.train, 0).answers, (Ids{1, 1, 0, 1, 1, 1, 0, 1, 0, 0}));
}

// A turn that both conversations have is a part of the prompt also where the context ends before the answers.
TEST_F(PairDatasetTest, EarlierTurnsAreNoAnswers) {
  const std::string turns = R"([{"role": "user", "content": "a"}, {"role": "assistant", "content": "same"}, )"
                            R"({"role": "user", "content": "bbbbbbbb"}, {"role": "assistant", "content": ")";
  write_file(folder_ / "c.jsonl", "{\"c\": " + turns + "yes\"}], \"r\": " + turns + "no\"}]}\n");
  const std::string path = folder_ / "c.h5";
  import_json({folder_ / "c.jsonl"}, path, {.chat_template = "plain", .chosen = "c", .rejected = "r"}, 0, {});
  DataOptions o;
  o.path = path, o.packing = Packing::kPairs, o.measured = DataPart::kAll;
  o.context = 128;
  const Row row = row_of(*open_datasets(o, 1).train, 0);
  std::string answers;
  for (size_t i = 0; i < row.next.size(); ++i)
    if (row.answers[i]) answers += static_cast<char>(row.next[i]);
  EXPECT_EQ(answers.find("same"), std::string::npos) << answers;
  EXPECT_NE(answers.find("yes"), std::string::npos) << answers;
  EXPECT_NE(answers.find("no"), std::string::npos) << answers;
  o.context = 32;
  expect_error(ExitCode::kConfig, {"in none of 1 pairs"}, [&] { open_datasets(o, 1); });
}

TEST_F(PairDatasetTest, AnswersNeedNoPrompt) {
  write_file(folder_ / "n.jsonl", R"({"yes": "AB", "no": "cde"})");
  const std::string path = folder_ / "n.h5";
  import_json({folder_ / "n.jsonl"}, path, {.chosen = "yes", .rejected = "no"}, 0, {});
  DataOptions o;
  o.path = path, o.context = 4, o.packing = Packing::kPairs, o.measured = DataPart::kAll;
  EXPECT_EQ(row_of(*open_datasets(o, 1).train, 0).answers, (Ids{1, 1, 1, 0, 0, 0, 0, 0}));
}

TEST_F(PairDatasetTest, WhatHasNoPairsIsRefused) {
  write_file(folder_ / "t.jsonl", R"({"t": "abc"})");
  import_json({folder_ / "t.jsonl"}, folder_ / "t.h5", {.text = "t"}, 0, {});
  DataOptions o;
  o.path = folder_ / "t.h5", o.context = 4, o.packing = Packing::kPairs, o.measured = DataPart::kAll;
  expect_error(ExitCode::kConfig, {"data.packing is pairs, but the data holds none", "--chosen and --rejected"},
               [&] { open_datasets(o, 1); });
  write_file(folder_ / "bad.jsonl", R"({"yes": "abc", "no": ""})");
  expect_error(ExitCode::kBadData, {"bad.jsonl:1", "no answer"}, [&] {
    import_json({folder_ / "bad.jsonl"}, folder_ / "b.h5", {.chosen = "yes", .rejected = "no"}, 0, {});
  });
  open(4, kTwo);
  DataOptions weighted;
  weighted.sources = {{out_, 1}, {out_, 2}};
  weighted.context = 4, weighted.packing = Packing::kPairs;
  expect_error(ExitCode::kConfig, {"data.sources", "has a weight", "data.packing: pairs"},
               [&] { open_datasets(weighted, 1); });
}

}  // namespace
}  // namespace lockstep::pair_dataset_test
