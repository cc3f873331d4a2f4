// Splitting, merging and growth of files whose targets are masks, boxes, numbers or labels of texts: values stay, and
// what was split and merged is what one import makes.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>

#include "data/images/codecs/image_codec.h"
#include "data/import/images/box_files.h"
#include "data/import/import.h"
#include "data/import/rearrange.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/show.h"
#include "data/samples/text/token_dataset.h"
#include "data/streams/open_dataset.h"
#include "tests/data/make_files.h"

namespace lockstep::rearrange_targets_test {
namespace {

using namespace test;

enum class Kind { kMasks, kEncodedMasks, kBoxes, kNumbers, kTexts, kPairs };

class RearrangeTargetsTest : public ::testing::TestWithParam<Kind> {
 protected:
  // Samples [from, to) of a set that is the same for all; `about` leads to what differs between sets.
  std::string make(const std::string& name, int from, int to) {
    const std::string path = folder_ / name;
    const ImportOptions replace{.force = true};
    if (GetParam() == Kind::kNumbers) {
      std::string text = "a,kind,y\n";
      for (int i = from; i < to; ++i) text += str(i * 0.5, i % 2 ? ",odd," : ",even,", i * i, "\n");
      write_file(folder_ / "t.csv", text);
      import_csv(folder_ / "t.csv", path, {.target = "y"}, replace);
      return path;
    }
    if (GetParam() == Kind::kTexts) {
      std::string lines;
      for (int i = from; i < to; ++i)
        lines += str("{\"t\": \"text ", i, "\", \"y\": \"", i % 3 == 0 ? "bad" : "good", "\"}\n");
      write_file(folder_ / "t.jsonl", lines);
      import_json({folder_ / "t.jsonl"}, path, {.text = "t", .label = "y"}, 0, replace);
      return path;
    }
    if (GetParam() == Kind::kPairs) {
      std::string lines;
      for (int i = from; i < to; ++i) lines += str("{\"q\": \"", i, "?\", \"a\": \"yes ", i, "\", \"b\": \"no\"}\n");
      write_file(folder_ / "t.jsonl", lines);
      import_json({folder_ / "t.jsonl"}, path, {.prompt = "q", .chosen = "a", .rejected = "b"}, 0, replace);
      return path;
    }
    const std::string images = folder_ / str(name, ".images"), masks = folder_ / str(name, ".targets");
    std::filesystem::create_directories(images);
    std::filesystem::create_directories(masks);
    const bool encoded = GetParam() == Kind::kEncodedMasks;
    for (int i = from; i < to; ++i) {
      const int64_t height = encoded ? 4 + i % 3 : 5;
      const std::string pixels = noise(static_cast<size_t>(height * 6), static_cast<uint32_t>(i));
      ByteImage image{height, 6, 1, {pixels.begin(), pixels.end()}}, mask = image;
      write_file(str(images, "/", i, ".png"), encode_png(image));
      for (uint8_t& value : mask.bytes) value = value % 4 == 3 ? 9 : value % 4;
      if (GetParam() == Kind::kBoxes)
        write_file(str(masks, "/", i, ".txt"),
                   i % 4 ? str(i % 2, " 0.5 0.5 0.", 1 + i % 9, " 0.25\n1 0.5 0.5 1 1\n") : "");
      else write_file(str(masks, "/", i, ".png"), encode_png(mask));
    }
    if (GetParam() == Kind::kBoxes) import_images(images, path, {.boxes = masks, .classes = 2}, replace);
    else import_images(images, path, {.keep_encoded = encoded, .masks = masks, .classes = 3, .ignored = 9}, replace);
    return path;
  }
  // What a sample and its target are, as they come to a model.
  static std::vector<std::string> samples_in(const std::string& path) {
    DataOptions o;
    o.path = path, o.measured = DataPart::kAll;
    const auto file = open_dataset_file(path, 1 << 20);
    if (GetParam() == Kind::kTexts) o.context = 12;
    if (GetParam() == Kind::kPairs) o.context = 12, o.packing = Packing::kPad;
    if (GetParam() == Kind::kEncodedMasks) o.image = {4, 4};
    const Datasets data = open_datasets(o, 1);
    std::vector<std::string> out;
    for (int64_t i = 0; i < data.train->size(); ++i) {
      std::vector<std::string> parts;
      std::vector<void*> memory;
      for (const TensorSpec& one : data.train->spec().tensors)
        parts.emplace_back(static_cast<size_t>(one.shape.numel() * size_of(one.dtype)), '\0');
      for (std::string& part : parts) memory.push_back(part.data());
      data.train->read(0, i, {data.train->spec().tensors, memory});
      std::string& sample = out.emplace_back();
      for (const std::string& part : parts) sample += part;
      if (GetParam() == Kind::kPairs) sample += *show_text(path, i).rejected;
      if (GetParam() != Kind::kBoxes) continue;
      for (float value : file->boxes_of(i)) sample += str(" ", value);
    }
    return out;
  }
  std::vector<SplitPart> split(const std::string& path, const SplitOptions& how = {}) {
    std::vector<SplitPart> parts{{folder_ / "a.h5", 0.6}, {folder_ / "b.h5", 0.4}};
    SplitOptions options = how;
    options.force = true;
    split_dataset(path, parts, options);
    return parts;
  }

  TemporaryFolder folder_;
};

TEST_P(RearrangeTargetsTest, PartsHaveTheSamplesAsTheyWere) {
  const std::string whole = make("whole.h5", 0, 50), out = folder_ / "out.h5";
  std::vector<std::string> all = samples_in(whole), found;
  for (const SplitPart& part : split(whole)) {
    const std::vector<std::string> some = samples_in(part.path);
    EXPECT_EQ(static_cast<int64_t>(some.size()), part.samples);
    found.insert(found.end(), some.begin(), some.end());
    EXPECT_EQ(inspect_dataset(part.path).class_names, inspect_dataset(whole).class_names);
    EXPECT_EQ(inspect_dataset(part.path).classes, inspect_dataset(whole).classes);
  }
  merge_datasets({folder_ / "a.h5", folder_ / "b.h5"}, out, {.keep_normalization = true});
  EXPECT_EQ(samples_in(out), found);
  std::sort(found.begin(), found.end());
  std::sort(all.begin(), all.end());
  EXPECT_EQ(found, all);
}

TEST_P(RearrangeTargetsTest, MergedAreWhatOneImportMakes) {
  // In folders the order of images depends on their names: two samples are merged in the order that an import has.
  const std::string a = make("a.h5", 0, 20), b = make("b.h5", 20, 50), out = folder_ / "out.h5";
  merge_datasets({a, b}, out, {});
  const DatasetReport merged = inspect_dataset(out), once = inspect_dataset(make("once.h5", 0, 50));
  EXPECT_EQ(merged.per_class, once.per_class);
  EXPECT_EQ(merged.ignored, once.ignored);
  EXPECT_EQ(merged.with_boxes, once.with_boxes);
  EXPECT_DOUBLE_EQ(merged.target_mean, once.target_mean);
  EXPECT_DOUBLE_EQ(merged.target_std, once.target_std);
  if (GetParam() == Kind::kTexts || GetParam() == Kind::kPairs) {
    EXPECT_EQ(merged.identity, once.identity);
  }
  std::vector<std::string> both = samples_in(out), all = samples_in(folder_ / "once.h5");
  std::sort(both.begin(), both.end());
  std::sort(all.begin(), all.end());
  if (GetParam() != Kind::kNumbers) {  // the mean of features may differ by a rounding
    EXPECT_EQ(both, all);
  }
}

TEST_P(RearrangeTargetsTest, TheFirstSamplesOfAFileThatGrewAreTheFileOfBefore) {
  const std::string a = make("a.h5", 0, 20), b = make("b.h5", 20, 50), out = folder_ / "out.h5";
  merge_datasets({a, b}, out, {.keep_normalization = true});
  const auto old = open_dataset_file(a, 1 << 20), first = open_first_samples(out, 0, 20);
  EXPECT_EQ(first->header.identity, old->header.identity);
  EXPECT_NE(open_dataset_file(out, 0)->header.identity, old->header.identity);
  EXPECT_NE(open_first_samples(out, 0, 19)->header.identity, old->header.identity);
  std::vector<std::string> samples = samples_in(out);
  samples.resize(20);
  EXPECT_EQ(samples, samples_in(a));
}

TEST_P(RearrangeTargetsTest, ByLabelWhereSamplesHaveOne) {
  const std::string whole = make("whole.h5", 0, 30);
  if (GetParam() != Kind::kTexts) {
    expect_error(ExitCode::kUsage, {"--by-label", GetParam() == Kind::kPairs ? "text" : "has no label for each sample"},
                 [&] { split(whole, {.by_label = true}); });
    return;
  }
  split(whole, {.by_label = true});
  EXPECT_EQ(inspect_dataset(folder_ / "a.h5").per_class, (std::vector<int64_t>{6, 12}));
  EXPECT_EQ(inspect_dataset(folder_ / "b.h5").per_class, (std::vector<int64_t>{4, 8}));
}

INSTANTIATE_TEST_SUITE_P(Targets, RearrangeTargetsTest,
                         ::testing::Values(Kind::kMasks, Kind::kEncodedMasks, Kind::kBoxes, Kind::kNumbers,
                                           Kind::kTexts, Kind::kPairs));

class MergedTargets : public ::testing::Test {
 protected:
  std::string boxes(const std::string& name, const std::string& categories, const std::string& box) {
    std::filesystem::create_directories(folder_ / "in");
    write_file(folder_ / "in/a.png", encode_png({10, 20, 1, std::vector<uint8_t>(200, 9)}));
    write_file(folder_ / "coco.json",
               str(R"({"images": [{"id": 7, "file_name": "a.png", "height": 10, "width": 20}], "categories": [)",
                   categories, R"(], "annotations": [)", box, "]}"));
    import_images(folder_ / "in", folder_ / name, {.boxes = folder_ / "coco.json"}, {.force = true});
    return folder_ / name;
  }
  std::string texts(const std::string& name, const std::string& lines, bool labels = true) {
    write_file(folder_ / "t.jsonl", lines);
    import_json({folder_ / "t.jsonl"}, folder_ / name, {.text = "t", .label = labels ? "y" : ""}, 0, {.force = true});
    return folder_ / name;
  }
  std::string table(const std::string& name, const TableOptions& how) {
    write_file(folder_ / "t.csv", "a,y\n1,2\n2,3\n3,2\n");
    import_csv(folder_ / "t.csv", folder_ / name, how, {.force = true});
    return folder_ / name;
  }
  void refused(const std::string& a, const std::string& b, const std::string& why) {
    const int64_t files = folder_.files();
    expect_error(ExitCode::kBadData, {a, b, why}, [&] { merge_datasets({a, b}, folder_ / "out.h5", {.force = true}); });
    EXPECT_EQ(folder_.files(), files);
  }

  TemporaryFolder folder_;
};

TEST_F(MergedTargets, AreFoundByTheNameOfTheirClass) {
  const std::string two = R"({"id": 1, "name": "cat"}, {"id": 2, "name": "dog"})";
  const std::string a = boxes("a.h5", two, R"({"id": 1, "image_id": 7, "category_id": 1, "bbox": [0, 0, 10, 5]})"),
                    b = boxes("b.h5", R"({"id": 5, "name": "dog"})",
                              R"({"id": 1, "image_id": 7, "category_id": 5, "bbox": [0, 0, 10, 5]})");
  merge_datasets({a, b}, folder_ / "out.h5", {});
  EXPECT_EQ(open_dataset_file(folder_ / "out.h5", 0)->boxes,
            (std::vector<float>{0, 0.25, 0.25, 0.5, 0.5, 1, 0.25, 0.25, 0.5, 0.5}));
  refused(b, a, "its label 'cat' is none of those of");

  const std::string good = "{\"t\": \"x\", \"y\": \"good\"}\n", bad = "{\"t\": \"z\", \"y\": \"bad\"}\n";
  const std::string both = texts("both.h5", good + bad), one = texts("one.h5", good);
  merge_datasets({both, one}, folder_ / "out.h5", {.force = true});
  EXPECT_EQ(open_dataset_file(folder_ / "out.h5", 0)->labels, (std::vector<int32_t>{1, 0, 1}));
  EXPECT_EQ(open_dataset_file(folder_ / "out.h5", 0)->header.class_names, (std::vector<std::string>{"bad", "good"}));
  refused(one, both, "its label 'bad' is none of those of");
  const std::string none = texts("none.h5", good, false), pairs = folder_ / "pairs.h5";
  refused(both, none, "one has a label for each record");
  import_json({folder_ / "t.jsonl"}, pairs, {.chosen = "t", .rejected = "y"}, 0);
  refused(none, pairs, "one has pairs of records");
}

TEST_F(MergedTargets, ThatAreOfOtherKindsAreNotMerged) {
  refused(table("numbers.h5", {.target = "y"}), table("labels.h5", {.label = "y"}),
          "one has labels, the other numbers to predict");
  const std::string one = R"({"id": 1, "name": "cat"})";
  const std::string some = boxes("a.h5", one, R"({"id": 1, "image_id": 7, "category_id": 1, "bbox": [0, 0, 10, 5]})");
  for (int i = 0; i < 2; ++i) {
    std::vector<SplitPart> parts{{folder_ / "p.h5", 0.5}, {folder_ / "q.h5", 0.5}};
    const std::string both = folder_ / "both.h5";
    merge_datasets({some, some}, both, {.force = true});
    split_dataset(both, parts, {.seed = static_cast<uint64_t>(i), .force = true});
    EXPECT_EQ(inspect_dataset(parts[0].path).with_boxes, 1);
  }
}

}  // namespace
}  // namespace lockstep::rearrange_targets_test
