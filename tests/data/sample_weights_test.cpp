// The weights of samples: read by imports, kept by files that are made of others, part of samples, and summed by the
// loader; and which are refused.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "core/io/hdf5/hdf5_file.h"
#include "data/import/import.h"
#include "data/import/rearrange.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/sample_writer.h"
#include "data/samples/show.h"
#include "data/streams/loader.h"
#include "data/streams/mixup.h"
#include "data/streams/open_dataset.h"
#include "data/streams/unlabelled.h"
#include "tests/support/files.h"

namespace lockstep::sample_weights_test {
namespace {

using namespace test;

using Weights = std::vector<float>;

class SampleWeights : public ::testing::Test {
 protected:
  std::string table(const std::string& name, const std::string& text, const TableOptions& how) {
    write_file(folder_ / "t.csv", text);
    import_csv(folder_ / "t.csv", folder_ / name, how, {.force = true});
    return folder_ / name;
  }
  // Rows of a feature, a weight each and a label.
  std::string weighted(const std::string& name, const Weights& weights) {
    std::string text = "a,w,y\n";
    for (size_t i = 0; i < weights.size(); ++i) text += str(i, ",", weights[i], ",", i % 2 ? "no" : "yes", "\n");
    return table(name, text, {.label = "y", .weight = "w"});
  }
  static Weights stored(const std::string& path) { return open_dataset_file(path, 0)->weights; }
  static Datasets open(const std::string& path, double validation = 0) {
    DataOptions o;
    o.path = path;
    o.validation = validation;
    return open_datasets(o, 1);
  }
  void refuse(std::initializer_list<std::string> parts, const std::string& text, const TableOptions& how) {
    expect_error(ExitCode::kBadData, parts, [&] { table("refused.h5", text, how); });
  }

  TemporaryFolder folder_;
};

TEST_F(SampleWeights, AreAColumnOfATableThatIsNoFeature) {
  const std::string text = "a,w,y\n1,0.5,no\n2, 0 ,yes\n4,3e1,yes\n";
  const std::string path = table("w.h5", text, {.label = "y", .weight = "w"});
  EXPECT_EQ(stored(path), (Weights{0.5f, 0, 30}));
  const DatasetReport report = inspect_dataset(path);
  EXPECT_EQ(report.image_shape, Shape{1}) << "the feature a";
  EXPECT_NE(to_text(report).find("sample weights: 0 to 30, mean 10.16"), std::string::npos) << to_text(report);
  EXPECT_NE(to_json(report).find("\"weight_least\":0.0,\"weight_most\":30.0"), std::string::npos) << to_json(report);
  const Datasets data = open(path);
  ASSERT_EQ(data.train->spec().tensors.back(), (TensorSpec{"sample_weights", DType::kFloat32, {}}));
  for (int64_t i = 0; i < 3; ++i) {
    float feature = 0, weight = -1;
    int32_t label = -1;
    data.train->read(0, i, {data.train->spec().tensors, std::array<void*, 3>{&feature, &label, &weight}});
    EXPECT_EQ(label, i > 0);
    EXPECT_EQ(weight, stored(path)[static_cast<size_t>(i)]);
  }
  EXPECT_EQ(stored(table("n.h5", "a,w,y\n1,\"0,5\",2\n2,1,3\n", {.target = "y", .weight = "w", .decimal_comma = true})),
            (Weights{0.5f, 1}));
}

TEST_F(SampleWeights, ThatAreAllOneAreAsNone) {
  const std::string path = weighted("w.h5", {1, 1, 1}), plain = folder_ / "p.h5";
  import_csv(folder_ / "t.csv", plain, {.label = "y", .leave_out = {"w"}});
  EXPECT_EQ(open_dataset_file(path, 0)->header.identity, open_dataset_file(plain, 0)->header.identity);
  EXPECT_EQ(open(path).train->spec().find(kSampleWeights), nullptr);
  EXPECT_EQ(to_text(inspect_dataset(path)).find("sample weights"), std::string::npos);
  EXPECT_NE(open_dataset_file(weighted("w.h5", {1, 2, 1}), 0)->header.identity,
            open_dataset_file(plain, 0)->header.identity);
}

TEST_F(SampleWeights, ThatAreNoneAreRefusedByFileAndLine) {
  const TableOptions how{.label = "y", .weight = "w"};
  for (const std::string bad : {"-0.5", "nan", "inf", "1e39", "many", ""})
    refuse({"t.csv:3: column 'w' holds '" + bad + "', which is no weight", "at least 0"},
           "a,w,y\n1,1,no\n2," + bad + ",yes\n", how);
  refuse({"t.csv:1: has no column 'v'; it has 'a', 'w', 'y'"}, "a,w,y\n1,1,no\n", {.label = "y", .weight = "v"});
  refuse({"t.csv:1: column 'y' cannot be both weight and label"}, "a,w,y\n1,1,no\n", {.label = "y", .weight = "y"});
  // Of a file that another program wrote.
  const std::string path = weighted("w.h5", {1, 2, 3}), broken = folder_ / "broken.h5";
  auto file = open_dataset_file(path, 0);
  DatasetHeader header = described_as(file->header);
  header.images = file->header.images;
  Hdf5File out = Hdf5File::create(broken);
  const float features[3] = {0, 1, 2};
  ChunkWriter rows(out, "features", StoredType::kFloat32, {3, 1}, 3);
  rows.append(features, 3);
  header.hashes = rows.finish();
  write_labels(out, file->labels, header);
  write_weights(out, {1, -2, 3}, header);
  write_dataset_header(out, header);
  out.close();
  expect_error(ExitCode::kBadData, {"broken.h5: the weight of row 1 is -2"}, [&] { open_dataset_file(broken, 0); });
}

TEST_F(SampleWeights, GoWithTheSamplesOfOtherFiles) {
  const std::string a = weighted("a.h5", {1, 0.5f, 2, 4}), b = weighted("b.h5", {1, 1, 1}), both = folder_ / "both.h5";
  merge_datasets({a, b}, both, {});
  EXPECT_EQ(stored(both), (Weights{1, 0.5f, 2, 4, 1, 1, 1})) << "samples without one weigh 1";
  merge_datasets({b, a}, both, {.force = true});
  EXPECT_EQ(stored(both), (Weights{1, 1, 1, 1, 0.5f, 2, 4}));
  std::vector<SplitPart> parts{{folder_ / "x.h5", 0.5}, {folder_ / "y.h5", 0.5}};
  split_dataset(a, parts, {});
  Weights all;
  for (const SplitPart& part : parts) {
    const auto file = open_dataset_file(part.path, 0);
    for (int64_t i = 0; i < sample_count(file->header); ++i) all.push_back(file->weight_of(i));
  }
  std::sort(all.begin(), all.end());
  EXPECT_EQ(all, (Weights{0.5f, 1, 2, 4}));
  // The first samples of a file are as a file of these alone.
  merge_datasets({a, b}, both, {.keep_normalization = true, .force = true});
  const auto first = open_first_samples(both, 0, 4);
  EXPECT_EQ(first->weights, stored(a));
  EXPECT_EQ(first->header.identity, open_dataset_file(a, 0)->header.identity);
  merge_datasets({b, a}, both, {.keep_normalization = true, .force = true});
  EXPECT_EQ(open_first_samples(both, 0, 3)->header.identity, open_dataset_file(b, 0)->header.identity);
}

TEST_F(SampleWeights, OfRecordsAreAFieldOrAColumn) {
  const std::string json = folder_ / "r.jsonl", csv = folder_ / "r.csv", a = folder_ / "a.h5", b = folder_ / "b.h5";
  write_file(json,
             "{\"t\": \"one\", \"y\": \"x\", \"w\": 0.5}\n{\"t\": \"\", \"y\": \"x\", \"w\": 9}\n"
             "{\"t\": \"two\", \"y\": \"z\", \"w\": 3}\n");
  write_file(csv, "w,t,y\n0.5,one,x\n9,,x\n3,two,z\n");
  import_json({json}, a, {.text = "t", .label = "y", .weight = "w"}, 0);
  import_csv_text(csv, b, {.text = "t", .label = "y", .weight = "w"});
  EXPECT_EQ(stored(a), (Weights{0.5f, 3})) << "the empty one is left out";
  EXPECT_EQ(open_dataset_file(a, 0)->header.identity, open_dataset_file(b, 0)->header.identity);
  EXPECT_EQ(show_text(a, 1).weight, 3);
  DataOptions o;
  o.path = a;
  o.context = 4;
  o.validation = 0;
  const Datasets data = open_datasets(o, 1);
  std::array<int32_t, 4> tokens{}, documents{}, positions{};
  int32_t label = -1;
  float weight = -1;
  data.train->read(0, 1,
                   {data.train->spec().tensors,
                    std::array<void*, 5>{tokens.data(), &label, documents.data(), positions.data(), &weight}});
  EXPECT_EQ(label, 1);
  EXPECT_EQ(weight, 3);
  merge_datasets({a, b}, folder_ / "both.h5", {});
  EXPECT_EQ(stored(folder_ / "both.h5"), (Weights{0.5f, 3, 0.5f, 3}));
  EXPECT_EQ(open_first_samples(folder_ / "both.h5", 0, 2)->header.identity, open_dataset_file(a, 0)->header.identity);
  write_file(json, "{\"t\": \"one\", \"y\": \"x\", \"w\": 1}\n{\"t\": \"two\", \"y\": \"x\", \"w\": -1}\n");
  const JsonFields fields{.text = "t", .label = "y", .weight = "w"};
  expect_error(ExitCode::kBadData, {"r.jsonl:2: its field \"w\" holds -1, which is no weight"},
               [&] { import_json({json}, a, fields, 0, {.force = true}); });
  write_file(csv, "w,t,y\n1,one,x\nheavy,two,z\n");
  expect_error(ExitCode::kBadData, {"r.csv:3: column 'w' holds 'heavy', which is no weight"},
               [&] { import_csv_text(csv, b, {.text = "t", .label = "y", .weight = "w"}, {.force = true}); });
}

TEST_F(SampleWeights, AreSummedOverTheTargetsOfAMicroBatch) {
  const Datasets data = open(weighted("w.h5", {0.5f, 0, 3, 1, 0.25f}));
  Loader loader(*data.train, {.batch_global = 5, .batch_micro = 2, .shuffle = false, .threads = 0, .one_epoch = true});
  const StepBatch step = loader.next();
  ASSERT_EQ(step.mine.size(), 3u);
  EXPECT_EQ(step.mine[0].targets, 0.5);
  EXPECT_EQ(step.mine[1].targets, 4);
  EXPECT_EQ(step.mine[2].targets, 0.25);
  EXPECT_EQ(step.targets, 4.75);
  EXPECT_EQ(step.mine[1].batch[kSampleWeights].to_vector(), (std::vector<double>{3, 1}));
}

TEST_F(SampleWeights, OfSeveralFilesMustBeThereInAll) {
  const std::string a = weighted("a.h5", {1, 0.5f, 2, 4}), b = weighted("b.h5", {1, 1, 1, 1});
  DataOptions o;
  o.sources = {{a}, {b}};
  o.validation = 0;
  expect_error(ExitCode::kBadData, {"b.h5", "samples have weights in some of them", "lockstep data merge"},
               [&] { open_datasets(o, 1); });
  // A validation file needs none, and may have some.
  for (const auto& [train, other] : {std::pair(a, b), std::pair(b, a)}) {
    DataOptions two;
    two.path = train, two.validation_path = other, two.validation = 0;
    const Datasets data = open_datasets(two, 1);
    EXPECT_EQ(data.train->spec().find(kSampleWeights) != nullptr, train == a);
    EXPECT_EQ(data.validation->spec().find(kSampleWeights) != nullptr, other == a);
  }
  expect_error(ExitCode::kConfig, {"data.augment.mixup", "weights"}, [&] { Mixup(open(a).train, 0.4, 1); });
}

TEST_F(SampleWeights, ArePartOfNoPrediction) {
  const std::string path = weighted("w.h5", {0.5f, 2});
  const UnlabelledSource source({path}, like_file(path));
  const Datasets data = source.open({}, 1);
  ASSERT_EQ(data.train->spec().tensors.size(), 2u);
  float feature = 7;
  int32_t label = 7;
  data.train->read(0, 1, {data.train->spec().tensors, std::array<void*, 2>{&feature, &label}});
  EXPECT_EQ(label, 0);
  EXPECT_EQ(feature, 1) << "normalised";
}

}  // namespace
}  // namespace lockstep::sample_weights_test
