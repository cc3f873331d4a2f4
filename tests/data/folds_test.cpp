// Cross-validation: folds partition the samples, and nothing of a fold is trained on.
#include <gtest/gtest.h>

#include <array>
#include <numeric>
#include <set>

#include "data/import/import.h"
#include "data/streams/open_dataset.h"
#include "tests/data/make_files.h"

namespace lockstep::folds_test {
namespace {

using namespace test;

constexpr int64_t kTokens = 200;

class FoldsTest : public ::testing::Test {
 protected:
  FoldsTest() {
    std::string ids(kTokens, '\0');
    std::iota(ids.begin(), ids.end(), '\0');
    write_file(folder_ / "t.txt", ids);
    import_text({folder_ / "t.txt"}, folder_ / "t.h5", TextLevel::kByte);
    std::string rows = "id,y\n", lines;
    for (int i = 0; i < 23; ++i) {
      rows += str(i, ",", i % 2, "\n");
      lines += str("{\"text\":\"", std::string(3, static_cast<char>('a' + i)), "\"}\n");
    }
    write_file(folder_ / "t.csv", rows);
    import_csv(folder_ / "t.csv", folder_ / "rows.h5", {.label = "y"});
    write_file(folder_ / "r.jsonl", lines);
    import_json({folder_ / "r.jsonl"}, folder_ / "records.h5", {.text = "text"}, 0);
  }
  DataOptions options(const std::string& name, int64_t of, int64_t index, int64_t context = 0) const {
    DataOptions o;
    o.path = folder_ / name;
    o.fold = {of, index};
    o.validation = 0;
    o.context = context;
    return o;
  }
  static std::vector<float> features(const Dataset& data) {
    std::vector<float> out;
    int32_t label = 0;
    for (int64_t i = 0; i < data.size(); ++i)
      data.read(0, i, {data.spec().tensors, std::array<void*, 2>{&out.emplace_back(), &label}});
    return out;
  }
  // Every token that is read or predicted, in all samples of an epoch; windows must be consecutive tokens.
  static std::set<int32_t> tokens(const Dataset& data, int64_t epoch) {
    std::set<int32_t> out;
    const auto context = static_cast<size_t>(data.spec().input().shape[0]);
    std::vector<int32_t> ids(context), labels(context);
    for (int64_t i = 0; i < data.size(); ++i) {
      data.read(epoch, i, {data.spec().tensors, std::array<void*, 2>{ids.data(), labels.data()}});
      for (size_t j = 0; j < context && labels[j] != kIgnoreIndex; ++j) {
        EXPECT_EQ(ids[j], ids[0] + static_cast<int32_t>(j)) << "a window with a gap";
        EXPECT_EQ(labels[j], ids[j] + 1) << "a label beyond an edge";
        out.insert(ids[j]);
        out.insert(labels[j]);
      }
    }
    return out;
  }

  TemporaryFolder folder_;
};

TEST_F(FoldsTest, EachRowIsValidatedOnceAndTrainedOnOtherwise) {
  DataOptions whole = options("rows.h5", 0, 0);
  whole.measured = DataPart::kAll;
  const std::vector<float> all = features(*open_datasets(whole, 1).train);
  std::vector<float> validated;
  for (int64_t index = 0; index < 5; ++index) {
    const Datasets data = open_datasets(options("rows.h5", 5, index), 1);
    const auto held_out = features(*data.validation), trained = features(*data.train);
    EXPECT_EQ(held_out.size(), index < 3 ? 5u : 4u);
    EXPECT_EQ(data.train->identity(), data.validation->identity()) << "that of the file";
    auto expected = all;
    for (float f : held_out) std::erase(expected, f);
    EXPECT_EQ(trained, expected) << "in order, without the fold";
    validated.insert(validated.end(), held_out.begin(), held_out.end());
    // What lockstep eval measures.
    for (const auto& [part, there] : {std::pair{DataPart::kValidation, held_out}, {DataPart::kTrain, trained}}) {
      DataOptions o = options("rows.h5", 5, index);
      o.measured = part;
      EXPECT_EQ(features(*open_datasets(o, 1).validation), there);
    }
  }
  EXPECT_EQ(validated, all);
}

TEST_F(FoldsTest, WindowsOfTextDoNotCrossTheEdgesOfAFold) {
  std::set<int32_t> validated;
  for (int64_t index = 0; index < 4; ++index) {
    const Datasets data = open_datasets(options("t.h5", 4, index, 7), 3);
    const auto held_out = tokens(*data.validation, 0);
    EXPECT_EQ(held_out.size(), 50u);
    EXPECT_EQ(*held_out.begin(), index * 50);
    std::set<int32_t> trained;
    for (int64_t epoch = 0; epoch < 30; ++epoch) trained.merge(tokens(*data.train, epoch));
    EXPECT_GT(trained.size(), 140u) << "nearly every other token has its turn, as without folds";
    for (int32_t t : held_out) EXPECT_FALSE(trained.contains(t)) << t;
    validated.insert(held_out.begin(), held_out.end());
  }
  EXPECT_EQ(validated.size(), static_cast<size_t>(kTokens));
}

TEST_F(FoldsTest, RecordsAreInOneFoldEach) {
  int64_t validated = 0;
  for (int64_t index = 0; index < 3; ++index) {
    DataOptions o = options("records.h5", 3, index, 8);
    o.packing = Packing::kPad;
    const Datasets data = open_datasets(o, 1);
    EXPECT_EQ(data.train->size() + data.validation->size(), 23);
    validated += data.validation->size();
  }
  EXPECT_EQ(validated, 23);
}

TEST_F(FoldsTest, AFoldThatCannotBeIsRefused) {
  const auto refused = [&](const std::string& why, const DataOptions& o) {
    expect_error(ExitCode::kConfig, {why}, [&] { open_datasets(o, 1); });
  };
  refused("data.fold.index is 5, but data.fold.of is 5", options("rows.h5", 5, 5));
  refused("data.fold.of is 24, but the data has 23", options("rows.h5", 24, 0));
  refused("data.fold.of is 1, which leaves nothing", options("rows.h5", 1, 0));
  DataOptions o = options("rows.h5", 5, 0);
  o.validation = 0.1;
  refused("set data.validation to 0", o);
  o.validation = 0;
  o.validation_path = o.path;
  refused("exclude each other", o);
  refused("data.fold.index is set, but data.fold.of is not", options("rows.h5", 0, 1));
}

}  // namespace
}  // namespace lockstep::folds_test
