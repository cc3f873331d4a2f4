// Bounding boxes: files of COCO and YOLO, importing them beside images, and what is refused.
#include "data/import/images/box_files.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>

#include "data/images/codecs/image_codec.h"
#include "data/import/import.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/show.h"
#include "data/streams/open_dataset.h"
#include "tests/support/files.h"

namespace lockstep::boxes_test {
namespace {

using namespace test;

constexpr const char* kCoco = R"({"info": {"year": 2017},
 "images": [{"id": 7, "file_name": "b.png", "height": 10, "width": 20}, {"id": 3, "file_name": "a.png", "height": 10, "width": 20}],
 "categories": [{"id": 18, "name": "dog", "supercategory": "animal"}, {"id": 1, "name": "person"}],
 "annotations": [
  {"id": 1, "image_id": 3, "category_id": 18, "bbox": [5, 2.5, 10, 5], "area": 50, "iscrowd": 0, "segmentation": [[1, 2]]},
  {"id": 2, "image_id": 3, "category_id": 1, "bbox": [15, 0, 10, 10]},
  {"id": 3, "image_id": 3, "category_id": 1, "bbox": [30, 0, 1, 1]},
  {"id": 4, "image_id": 3, "category_id": 1, "bbox": [0, 0, 5, 5], "iscrowd": 1}]})";

class BoxesTest : public ::testing::Test {
 protected:
  std::string put(const std::string& name, const std::string& text) {
    const std::string path = folder_ / name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file(path, text);
    return path;
  }
  void put_image(const std::string& name, int64_t channels = 1, int64_t height = 10) {
    put("in/" + name,
        encode_png({height, 20, channels, std::vector<uint8_t>(static_cast<size_t>(height * 20 * channels), 9)}));
  }
  // kCoco with something else in it.
  void refuse_coco(const std::string& from, const std::string& to, std::initializer_list<std::string> parts) {
    std::string text = kCoco;
    const size_t at = text.find(from);
    ASSERT_NE(at, text.npos) << from;
    const std::string path = put("coco.json", text.replace(at, from.size(), to));
    expect_error(ExitCode::kBadData, parts, [&] { read_coco_boxes(path); });
  }

  TemporaryFolder folder_;
  std::string in_ = folder_ / "in", out_ = folder_ / "out.h5";
};

TEST_F(BoxesTest, OfCocoAreInPartsOfTheImage) {
  const CocoFile file = read_coco_boxes(put("coco.json", kCoco));
  EXPECT_EQ(file.class_names, (std::vector<std::string>{"person", "dog"})) << "in the order of their ids";
  EXPECT_EQ(file.crowds, 1);
  ASSERT_EQ(file.images.size(), 2u);
  EXPECT_EQ(file.images[0].name, "b.png");
  EXPECT_TRUE(file.images[0].boxes.rows.empty());
  const Boxes& boxes = file.images[1].boxes;
  EXPECT_EQ(boxes.rows, (std::vector<float>{1, 0.5, 0.5, 0.5, 0.5, 0, 0.875, 0.5, 0.25, 1}));
  EXPECT_EQ(boxes.cut, 1);
  EXPECT_EQ(boxes.outside, 1);
}

TEST_F(BoxesTest, OfCocoThatAreWrongAreNamed) {
  refuse_coco("{\"info\"", "[\"info\"", {"coco.json: is no JSON object"});
  refuse_coco("\"annotations\"", "\"annotation\"", {"coco.json", "annotations"});
  refuse_coco("\"id\": 3", "\"id\": 7", {"coco.json: images 1: the id 7 is there twice"});
  refuse_coco("\"id\": 18", "\"id\": 1", {"coco.json: categories 1: the id 1 is there twice"});
  refuse_coco("\"image_id\": 3, \"category_id\": 1,", "\"image_id\": 5, \"category_id\": 1,",
              {"coco.json: annotations 1: there is no image"});
  refuse_coco("\"category_id\": 18", "\"category_id\": 17", {"coco.json: annotations 0: there is no category"});
  refuse_coco("[5, 2.5, 10, 5]", "[5, 2.5, 10]", {"coco.json: annotations 0", "4 numbers"});
  refuse_coco("[5, 2.5, 10, 5]", "[5, 2.5, 10, \"5\"]", {"coco.json: annotations 0", "4 numbers"});
  refuse_coco("[5, 2.5, 10, 5]", "[5, 2.5, 10, 1e300]", {"coco.json: annotations 0", "4 numbers"});
  refuse_coco("\"height\": 10", "\"height\": 0", {"coco.json: images 0", "height"});
}

TEST_F(BoxesTest, OfYoloAreReadAndWhatIsWrongIsNamed) {
  const Boxes boxes = read_yolo_boxes(put("a.txt", "0 0.5 0.5 1 1\n\n3\t0.25 0.5  0.5 0.25\r\n1 2 2 0.5 0.5\n"));
  EXPECT_EQ(boxes.rows, (std::vector<float>{0, 0.5, 0.5, 1, 1, 3, 0.25, 0.5, 0.5, 0.25}));
  EXPECT_EQ(boxes.cut, 0);
  EXPECT_EQ(boxes.outside, 1);
  EXPECT_TRUE(read_yolo_boxes(put("a.txt", "")).rows.empty());
  const auto refuse = [&](const std::string& text, std::initializer_list<std::string> parts) {
    const std::string path = put("a.txt", text);
    expect_error(ExitCode::kBadData, parts, [&] { read_yolo_boxes(path); });
  };
  refuse("0 0.5 0.5 1 1\n0 0.5 0.5 1\n", {"a.txt:2", "4 numbers"});
  refuse("0 0.5 0.5 1 1 0.9\n", {"a.txt:1", "5 numbers"});
  refuse("cat 0.5 0.5 1 1\n", {"a.txt:1", "5 numbers"});
  refuse("0.5 0.5 0.5 1 1\n", {"a.txt:1", "the class is 0.5"});
  refuse("-1 0.5 0.5 1 1\n", {"a.txt:1", "the class is -1"});
  refuse("0 nan 0.5 1 1\n", {"a.txt:1", "5 numbers"});
}

TEST_F(BoxesTest, ClassesWithoutABoxAreNamed) {
  put_image("a.png");
  put("boxes/a.txt", "1 0.5 0.5 1 1\n3 0.25 0.5  0.5 0.25\n");
  for (const int64_t classes : {0, 4}) {
    ::testing::internal::CaptureStderr();
    import_images(in_, out_, {.boxes = folder_ / "boxes", .classes = classes}, {.force = true});
    const std::string said = ::testing::internal::GetCapturedStderr();
    EXPECT_EQ(said.find("boxes: its labels are numbers of 4 classes, from 0 to the largest, and classes 0, 2 have "
                        "no sample") != said.npos,
              classes == 0)
        << said;
  }
}

TEST_F(BoxesTest, AreStoredBesideTheirImages) {
  put_image("a.png", 3);
  put_image("b.png");
  put_image("unnamed.png");
  const std::string coco = put("coco.json", kCoco);
  for (bool encoded : {false, true}) {
    import_images(in_, out_, {.keep_encoded = encoded, .boxes = coco}, {.force = true});
    const auto file = open_dataset_file(out_, 1 << 20);
    EXPECT_EQ(file->header.target, TargetKind::kBoxes);
    EXPECT_EQ(file->header.class_names, (std::vector<std::string>{"person", "dog"}));
    ASSERT_EQ(file->header.images[0], 2);
    int64_t with = 0;
    for (int64_t i = 0; i < 2; ++i) {
      const std::vector<float> boxes(file->boxes_of(i).begin(), file->boxes_of(i).end());
      if (boxes.empty()) continue;
      with = i;
      EXPECT_EQ(boxes, (std::vector<float>{1, 0.5, 0.5, 0.5, 0.5, 0, 0.875, 0.5, 0.25, 1}));
    }
    const DatasetReport report = inspect_dataset(out_);
    EXPECT_EQ(report.per_class, (std::vector<int64_t>{1, 1}));
    EXPECT_NE(to_text(report).find("boxes: 2 in 1 images\nclasses: 2\nboxes per class: 1 (person), 1 (dog)\n"),
              std::string::npos);
    // The dog's box is in the colour of class 2 of masks.
    const auto shown = show_image(out_, with);
    const ByteImage picture = decode_image(shown->png, 3, "shown");
    const auto pixel = [&](int64_t x, int64_t y) {
      const uint8_t* at = picture.bytes.data() + (y * 20 + x) * 3;
      return std::array<int, 3>{at[0], at[1], at[2]};
    };
    EXPECT_EQ(shown->boxes.size(), 10u);
    EXPECT_EQ(pixel(5, 2), (std::array<int, 3>{0, 128, 0}));
    EXPECT_EQ(pixel(15, 0), (std::array<int, 3>{128, 0, 0}));
    EXPECT_EQ(pixel(10, 5), (std::array<int, 3>{9, 9, 9}));
  }
  DataOptions o;
  o.path = out_;
  o.image = {8, 8};
  o.validation = 0;
  EXPECT_EQ(open_datasets(o, 1).train->spec().tensors.size(), 1u) << "no part of samples";
}

TEST_F(BoxesTest, ThatDoNotFitTheFolderAreRefused) {
  put_image("a.png", 1, 11);
  const auto refuse = [&](std::initializer_list<std::string> parts, const ImageOptions& images,
                          ExitCode code = ExitCode::kBadData) {
    expect_error(code, parts, [&] { import_images(in_, out_, images); });
    EXPECT_FALSE(std::filesystem::exists(out_));
  };
  refuse({"b.png"}, {.boxes = put("coco.json", kCoco)}, ExitCode::kMissingInput);
  put_image("b.png");
  refuse({"in/a.png: has 11 x 20 pixels, but", "coco.json says 10 x 20"}, {.boxes = folder_ / "coco.json"});
  refuse({"nowhere: is neither a folder"}, {.boxes = folder_ / "nowhere"}, ExitCode::kMissingInput);
  put("labels/a.txt", "");
  refuse({"labels: no image has a box"}, {.boxes = folder_ / "labels"});
  put("labels/a.txt", "4 0.5 0.5 0.1 0.1\n");
  refuse({"labels/a.txt: has a box of class 4, not in [0, 3)"}, {.boxes = folder_ / "labels", .classes = 3});
  import_images(in_, out_, {.boxes = folder_ / "labels"});
  EXPECT_EQ(inspect_dataset(out_).classes, 5);
  const float part = 0.1f;
  flip_byte_of(out_, &part, sizeof part, 1);
  expect_error(ExitCode::kBadData, {out_, "boxes"}, [&] { inspect_dataset(out_); });
}

}  // namespace
}  // namespace lockstep::boxes_test
