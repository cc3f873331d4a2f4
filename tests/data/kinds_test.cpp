// The lists of kinds of samples and targets fit their enums, and the words by which files and checkpoints name them are
// those of earlier versions.
#include <gtest/gtest.h>

#include <set>

#include "data/samples/sample_kind.h"
#include "data/samples/sample_target.h"
#include "data/store/ragged_ends.h"

namespace lockstep::kinds_test {
namespace {

TEST(KindsTest, StandInTheOrderOfTheirEnum) {
  EXPECT_EQ(sample_kind(DataKind::kTokens).words().name, "tokens");
  EXPECT_EQ(sample_kind(DataKind::kImages).words().name, "images");
  EXPECT_EQ(sample_kind(DataKind::kTable).words().name, "table");
  EXPECT_EQ(sample_target(TargetKind::kLabels).words().name, "labels");
  EXPECT_EQ(sample_target(TargetKind::kNumbers).words().name, "numbers");
  EXPECT_EQ(sample_target(TargetKind::kMasks).words().name, "masks");
  EXPECT_EQ(sample_target(TargetKind::kBoxes).words().name, "boxes");
}

TEST(KindsTest, AreFoundByTheirNames) {
  std::set<std::string> stored;
  for (size_t i = 0; i < sample_kinds().size(); ++i) {
    EXPECT_EQ(kind_of_name(sample_kinds()[i]->words().name), i);
    for (const std::string& name : sample_kinds()[i]->stored_names()) {
      EXPECT_EQ(kind_of_stored(name), i);
      EXPECT_TRUE(stored.insert(name).second) << name;
    }
  }
  EXPECT_EQ(stored, (std::set<std::string>{"encoded_images", "images", "table", "tokens"}));
  std::set<std::string> datasets;
  for (size_t i = 0; i < sample_targets().size(); ++i) {
    EXPECT_EQ(target_of_name(sample_targets()[i]->words().name), i);
    EXPECT_TRUE(datasets.insert(sample_targets()[i]->words().dataset).second);
  }
  EXPECT_EQ(datasets, (std::set<std::string>{"boxes", "labels", "masks", "targets"}));
  EXPECT_EQ(kind_of_name("sounds"), sample_kinds().size());
  EXPECT_EQ(kind_of_stored("sounds"), sample_kinds().size());
  EXPECT_EQ(target_of_name("sounds"), sample_targets().size());
}

TEST(RaggedEndsTest, SayWhereEachSampleLies) {
  RaggedEnds parts;
  EXPECT_EQ(parts.of(IndexRange{2, 5}).size(), 3);  // one row each
  for (int64_t rows : {3, 0, 4}) parts.add(rows);
  EXPECT_EQ(parts.ends, (std::vector<int64_t>{3, 3, 7}));
  EXPECT_TRUE(parts.of(1).empty());
  EXPECT_EQ(parts.of(2).begin, 3);
  EXPECT_EQ(parts.of(2).end, 7);
  EXPECT_EQ(parts.of(IndexRange{0, 3}).size(), 7);
  EXPECT_EQ(parts.of(IndexRange{1, 2}).begin, 3);
  EXPECT_TRUE(parts.of(IndexRange{2, 2}).empty());
}

}  // namespace
}  // namespace lockstep::kinds_test
