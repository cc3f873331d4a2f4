// Masks: what PNG files say of pixels, importing them beside images, how they move with an image, and what is refused.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <map>
#include <sstream>

#include "core/metrics/metric.h"
#include "data/images/augment.h"
#include "data/images/codecs/image_codec.h"
#include "data/import/import.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/show.h"
#include "data/streams/open_dataset.h"
#include "tests/support/files.h"

namespace lockstep::masks_test {
namespace {

using namespace test;

constexpr int64_t kHeight = 12, kWidth = 16;

std::string fixture(const std::string& name) { return content(std::string(LOCKSTEP_TEST_IMAGES) + "/" + name); }

std::string hex_of(const std::vector<uint8_t>& bytes) {
  std::string out;
  for (uint8_t b : bytes) out += {"0123456789abcdef"[b >> 4], "0123456789abcdef"[b & 15]};
  return out;
}

TEST(MaskCodec, ReadsValuesAndIndicesAsPillowDoes) {
  std::istringstream lines(fixture("golden_masks.txt"));
  int64_t count = 0;
  for (std::string name, bytes; lines >> name; ++count) {
    int64_t height, width;
    PixelBox box;
    lines >> height >> width >> box.left >> box.top >> box.right >> box.bottom >> bytes;
    const ByteImage mask = decode_mask(fixture(name), name);
    EXPECT_EQ(mask.channels, 1);
    const ByteImage part = resize_nearest(mask.bytes.data(), mask.height, mask.width, 1, box, height, width);
    EXPECT_EQ(hex_of(part.bytes), bytes) << name << " to " << height << " x " << width;
  }
  EXPECT_EQ(count, 14);
  for (uint8_t bit : decode_mask(fixture("bits.png"), "bits.png").bytes) EXPECT_LE(bit, 1) << "not expanded to 255";
}

TEST(MaskCodec, RefusesWhatHoldsNoClasses) {
  for (const char* name : {"rgb.png", "rgba.png", "grey16.png"})
    expect_error(ExitCode::kBadData, {"m.png", "a mask is grey or has a palette"},
                 [&] { decode_mask(fixture(name), "m.png"); });
  expect_error(ExitCode::kBadData, {"m.png: is no PNG file"}, [] { decode_mask(fixture("grey.jpg"), "m.png"); });
  const std::string whole = fixture("palette.png");
  for (size_t size = 0; size + 2 < whole.size(); ++size)
    expect_error(ExitCode::kBadData, {"m.png: is "}, [&] { decode_mask(whole.substr(0, size), "m.png"); });
}

class MasksTest : public ::testing::Test {
 protected:
  static void put(const std::string& path, const std::string& bytes) {
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file(path, bytes);
  }
  // A figure of class 1 and a stripe that is ignored, on class 0.
  static std::vector<uint8_t> mask_of(int64_t image) {
    std::vector<uint8_t> out;
    for (int64_t y = 0; y < kHeight; ++y)
      for (int64_t x = 0; x < kWidth; ++x)
        out.push_back(x == 15 ? 9 : (x - 7 - image % 4) * (x - 7 - image % 4) + (y - 6) * (y - 6) < 20);
    return out;
  }
  // Of a class, whose mixtures are those of no class.
  static uint8_t grey_of(uint8_t value) { return value == 1 ? 250 : 50; }
  void put_images(int64_t count = 10) {
    for (int64_t i = 0; i < count; ++i) {
      const std::vector<uint8_t> mask = mask_of(i);
      ByteImage image{kHeight, kWidth, 1, {}};
      for (uint8_t value : mask) image.bytes.push_back(grey_of(value));
      image.bytes[0] = static_cast<uint8_t>(i);  // by which a sample is known
      put(str(in_, "/", i, ".png"), encode_png(image));
      put(str(masks_, "/", i, ".png"), encode_png({kHeight, kWidth, 1, mask}));
    }
  }
  ImageOptions how() { return {.masks = masks_, .ignored = 9}; }
  struct Sample {
    std::vector<int> pixels;  // bytes
    std::vector<int32_t> labels;
  };
  Sample sample(const Dataset& data, int64_t index, int64_t epoch = 0) {
    const auto pixels = static_cast<size_t>(data.spec().input().shape.numel());
    std::vector<float> values(pixels);
    Sample out{{}, std::vector<int32_t>(pixels)};
    data.read(epoch, index, {data.spec().tensors, std::array<void*, 2>{values.data(), out.labels.data()}});
    const auto file = open_dataset_file(out_, 1 << 20);
    for (float v : values)
      out.pixels.push_back(static_cast<int>(std::lround((v * file->header.stddev[0] + file->header.mean[0]) * 255)));
    return out;
  }
  Datasets open(const AugmentOptions& augment, int64_t height = 0, int64_t width = 0) {
    DataOptions o;
    o.path = out_;
    o.validation = 0.2;
    o.image = {height, width};
    o.augment = augment;
    return open_datasets(o, 3);
  }
  void refuse(std::initializer_list<std::string> parts, const ImageOptions& images,
              ExitCode code = ExitCode::kBadData) {
    expect_error(code, parts, [&] { import_images(in_, out_, images); });
    EXPECT_FALSE(std::filesystem::exists(out_));
  }

  TemporaryFolder folder_;
  std::string in_ = folder_ / "in", masks_ = folder_ / "masks", out_ = folder_ / "out.h5";
};

TEST_F(MasksTest, EachPixelHasALabelHoweverImagesAreStored) {
  put_images();
  for (bool encoded : {false, true}) {
    ImageOptions images = how();
    images.keep_encoded = encoded;
    import_images(in_, out_, images, {.force = true});
    const Datasets data = open({}, kHeight, kWidth);
    EXPECT_EQ(data.train->spec().tensors[1], (TensorSpec{"labels", DType::kInt32, {kHeight, kWidth}}));
    EXPECT_EQ(data.train->spec().classes, 2);
    EXPECT_EQ(data.train->spec().targets(), kHeight * kWidth);
    for (const Dataset* part : {data.train.get(), data.validation.get()})
      for (int64_t i = 0; i < part->size(); ++i) {
        const Sample s = sample(*part, i);
        const std::vector<uint8_t> wanted = mask_of(s.pixels[0]);
        for (size_t at = 0; at < wanted.size(); ++at)
          ASSERT_EQ(s.labels[at], wanted[at] == 9 ? kIgnoreIndex : wanted[at]) << at;
      }
    const DatasetReport report = inspect_dataset(out_);
    std::vector<int64_t> counts(2);
    for (int64_t i = 0; i < 10; ++i)
      for (uint8_t value : mask_of(i))
        if (value < 2) ++counts[value];
    EXPECT_EQ(report.per_class, counts);
    EXPECT_EQ(report.ignored, 10 * kHeight);
    EXPECT_NE(to_text(report).find(str("pixels per class: ", counts[0], ", ", counts[1], ", ignored: 120\n")),
              std::string::npos);
  }
}

TEST_F(MasksTest, AreShownBesideTheirImage) {
  put_images(2);
  import_images(in_, out_, how());
  const auto shown = show_image(out_, 1);
  ASSERT_TRUE(shown && shown->target == TargetKind::kMasks);
  EXPECT_EQ(shown->in_mask, (std::vector<int64_t>{0, 1}));
  const ByteImage both = decode_image(shown->png, 3, "shown");
  ASSERT_EQ(both.width, 2 * kWidth);
  const std::vector<uint8_t> mask = mask_of(both.bytes[0]);
  const std::map<uint8_t, std::vector<uint8_t>> colours{{0, {0, 0, 0}}, {1, {128, 0, 0}}, {9, {224, 224, 192}}};
  for (int64_t y = 0; y < kHeight; ++y)
    for (int64_t x = 0; x < kWidth; ++x) {
      const uint8_t* right = both.bytes.data() + (y * 2 * kWidth + kWidth + x) * 3;
      EXPECT_EQ(std::vector<uint8_t>(right, right + 3), colours.at(mask[static_cast<size_t>(y * kWidth + x)]));
    }
}

TEST_F(MasksTest, MoveWithTheirImage) {
  put_images();
  import_images(in_, out_, how());
  int64_t outside = 0;
  const Datasets moved = open({.flip = 0.5, .shift = 3});
  for (int64_t epoch : {0, 1, 2})
    for (int64_t i = 0; i < moved.train->size(); ++i) {
      const Sample s = sample(*moved.train, i, epoch);
      for (size_t at = 0; at < s.labels.size(); ++at) {
        ASSERT_EQ(s.labels[at] == 1, s.pixels[at] == 250);
        outside += s.pixels[at] == 0 && s.labels[at] == kIgnoreIndex;
      }
    }
  EXPECT_GT(outside, 100) << "what lies outside the image is no target";
  // Where a turned or cropped image has the grey of one class alone, its mask has that class.
  AugmentOptions turned;
  turned.rotate = 20;
  AugmentOptions cropped;
  cropped.crop_area = 0.4;
  for (const AugmentOptions& o : {turned, cropped}) {
    const Datasets data = open(o, kHeight, kWidth);
    int64_t seen = 0;
    for (int64_t i = 0; i < data.train->size(); ++i) {
      const Sample s = sample(*data.train, i);
      for (int64_t y = 3; y < kHeight - 3; ++y)
        for (int64_t x = 3; x < kWidth - 3; ++x) {
          const auto at = static_cast<size_t>(y * kWidth + x);
          if (s.pixels[at] != 250) continue;
          ASSERT_EQ(s.labels[at], 1) << i << ": " << y << ", " << x;
          ++seen;
        }
    }
    EXPECT_GT(seen, 50);
  }
}

TEST_F(MasksTest, MixedSizesAreResized) {
  put_images(4);
  put(in_ + "/deep/4.png", encode_png({6, 8, 1, std::vector<uint8_t>(48, 50)}));
  put(masks_ + "/deep/4.png", encode_png({6, 8, 1, std::vector<uint8_t>(48, 1)}));
  import_images(in_, out_, how());
  EXPECT_TRUE(open_dataset_file(out_, 1 << 20)->header.encoded);
  const Datasets data = open({}, 3, 4);
  EXPECT_EQ(data.train->spec().tensors[1].shape, (Shape{3, 4}));
  EXPECT_EQ(inspect_dataset(out_).count, 5);
}

// As painting programs write them: black and white are the classes 0 and 1, however images are stored.
TEST_F(MasksTest, BlackAndWhiteAreTwoClasses) {
  for (int64_t i = 0; i < 4; ++i) {
    std::vector<uint8_t> mask(6, 0);
    if (i < 2) mask[static_cast<size_t>(i)] = 255;
    put(str(in_, "/", i, ".png"), encode_png({2, 3, 1, std::vector<uint8_t>(6, static_cast<uint8_t>(i))}));
    put(str(masks_, "/", i, ".png"), encode_png({2, 3, 1, mask}));
  }
  for (const bool encoded : {false, true})
    for (const int64_t classes : {0, 2}) {
      import_images(in_, out_, {.keep_encoded = encoded, .masks = masks_, .classes = classes}, {.force = true});
      const DatasetReport report = inspect_dataset(out_);
      EXPECT_EQ(report.per_class, (std::vector<int64_t>{22, 2}));
      EXPECT_EQ(open_dataset_file(out_, 1 << 20)->header.encoded, encoded);
    }
  import_images(in_, out_, {.masks = masks_, .ignored = 255}, {.force = true});
  EXPECT_EQ(inspect_dataset(out_).ignored, 2) << "--ignore 255 says otherwise";
  put(masks_ + "/3.png", encode_png({2, 3, 1, {0, 0, 0, 0, 0, 7}}));
  std::filesystem::remove(out_);
  refuse({"is 255 at row", "not a class in [0, 255)"}, {.masks = masks_});
}

TEST_F(MasksTest, ColoursAreClassesByAPalette) {
  const std::vector<uint8_t> red{255, 0, 0}, blue{0, 0, 255}, grey{9, 9, 9};
  for (int64_t i = 0; i < 3; ++i) {
    ByteImage mask{1, 3, 3, {}};
    for (const auto* colour : {&red, i == 1 ? &blue : &red, i == 2 ? &grey : &blue})
      mask.bytes.insert(mask.bytes.end(), colour->begin(), colour->end());
    put(str(in_, "/", i, ".png"), encode_png({1, 3, 1, {0, 1, static_cast<uint8_t>(i)}}));
    put(str(masks_, "/", i, ".png"), encode_png(mask));
  }
  const std::string palette = folder_ / "colours.txt";
  write_file(palette, "# R G B name\n255 0 0 roof tile\n0,0,255\twater\n\n1 2 3\n9 9 9 ignore\n");
  const ImageOptions images{.masks = masks_, .palette = palette};
  for (const bool encoded : {false, true}) {
    ImageOptions own = images;
    own.keep_encoded = encoded;
    import_images(in_, out_, own, {.force = true});
    const DatasetReport report = inspect_dataset(out_);
    EXPECT_EQ(report.class_names, (std::vector<std::string>{"roof tile", "water", "class 2"}));
    EXPECT_EQ(report.per_class, (std::vector<int64_t>{5, 3, 0})) << "a class without a pixel stays one";
    EXPECT_EQ(report.ignored, 1);
  }
  std::filesystem::remove(out_);
  const auto refused = [&](const std::string& text, std::initializer_list<std::string> parts) {
    write_file(palette, text);
    refuse(parts, images);
  };
  refused("255 0 0\n0 0 255\n", {"masks/2.png: has the colour 9 9 9 at row 0, column 2", "'9 9 9 ignore'"});
  refused("255 0\n", {"colours.txt:1: expected red, green and blue"});
  refused("255 0 256\n", {"colours.txt:1: expected red, green and blue"});
  refused("1 1 1 a\n1 1 1 b\n", {"colours.txt:2: the colour 1 1 1 is there twice"});
  refused("1 1 1 a\n2 1 1 a\n", {"colours.txt:2: the class 'a' is there twice"});
  refused("1 1 1 ignore\n", {"holds no colour of a class"});
}

// A test set that lacks the last class has as many as the run's data.
TEST_F(MasksTest, AClassThatIsMissingStaysOne) {
  const auto import = [&](uint8_t largest, const std::string& output, const ImportOptions& options) {
    put(in_ + "/1.png", encode_png({1, 2, 1, {0, 1}}));
    put(masks_ + "/1.png", encode_png({1, 2, 1, {0, largest}}));
    import_images(in_, output, {.masks = masks_}, options);
  };
  const std::string training = folder_ / "training.h5";
  import(3, training, {});
  import(1, out_, {.like = like_file(training)});
  EXPECT_EQ(open_dataset_file(out_, 1 << 20)->header.classes, 4);
}

TEST_F(MasksTest, RefusesWhatDoesNotFit) {
  put_images(3);
  refuse({"masks/", ".png: is 9 at row 0, column 15", "[0, 3)", "--ignore 9"}, {.masks = masks_, .classes = 3});
  refuse({"masks/", ".png: is 1 at row", "[0, 1)"}, {.masks = masks_, .classes = 1, .ignored = 9});
  put(masks_ + "/1.png", encode_png({2, 2, 1, std::vector<uint8_t>(4)}));
  refuse({"masks/1.png: has 2 x 2 pixels, but 1.png has 12 x 16"}, how());
  put(masks_ + "/1.png", fixture("rgb.png"));
  refuse({"masks/1.png", "a mask is grey"}, how());
  std::filesystem::remove(masks_ + "/1.png");
  refuse({"masks/1.png: is not there; it would be the mask of 1.png"}, how());
  refuse({"nowhere: is no folder"}, {.masks = folder_ / "nowhere"}, ExitCode::kMissingInput);
  std::filesystem::remove_all(in_);
  put(in_ + "/1.png", encode_png({2, 2, 1, std::vector<uint8_t>(4)}));
  put(masks_ + "/1.png", encode_png({2, 2, 1, std::vector<uint8_t>(4, 9)}));
  refuse({"all pixels of all masks are 9"}, how());
}

TEST_F(MasksTest, DamageIsFound) {
  put_images(3);
  import_images(in_, out_, how());
  const std::vector<uint8_t> mask = mask_of(1);
  flip_byte_of(out_, mask.data(), mask.size(), 1);
  expect_error(ExitCode::kBadData, {out_, "masks"}, [&] { inspect_dataset(out_); });
}

// A file of another program whose hashes are right.
TEST_F(MasksTest, ValuesThatAreNoClassesAreRefused) {
  const auto write = [&](uint8_t value, int64_t classes, int64_t ignored) {
    Hdf5File file = Hdf5File::create(out_);
    DatasetHeader h;
    h.kind = DataKind::kImages;
    h.images = {2, 1, 3, 1};
    h.classes = classes, h.ignored = ignored, h.target = TargetKind::kMasks;
    h.mean = {0}, h.stddev = {1};
    const std::vector<uint8_t> bytes{0, 0, 0, 0, 0, value};
    ChunkWriter images(file, "images", StoredType::kUInt8, h.images, 2);
    images.append(bytes.data(), 2);
    h.hashes = images.finish();
    ChunkWriter masks(file, "masks", StoredType::kUInt8, {2, 1, 3}, 2);
    masks.append(bytes.data(), 2);
    h.label_hashes = masks.finish();
    write_dataset_header(file, h);
    file.close();
  };
  write(3, 3, 255);
  expect_error(ExitCode::kBadData, {"mask 1 is 3 at row 0, column 2", "[0, 3)"}, [&] { inspect_dataset(out_); });
  write(3, 256, -1);
  expect_error(ExitCode::kBadData, {"masks of 256 classes", "255"}, [&] { inspect_dataset(out_); });
  write(3, 3, 256);
  expect_error(ExitCode::kBadData, {"the value 256 is ignored"}, [&] { inspect_dataset(out_); });
  write(3, 4, -1);
  EXPECT_EQ(inspect_dataset(out_).per_class, (std::vector<int64_t>{5, 0, 0, 1}));
}

TEST(Iou, LeavesOutPixelsThatAreNoTargets) {
  // Predicted 1, 1, 0, 1; of the last the label is ignored.
  const Tensor output = Tensor::of<float>({0, 1, 0, 1, 1, 0, 0, 1}, {1, 2, 2, 2});
  Batch batch;
  batch.add("labels", Tensor::of<int32_t>({1, 0, 1, kIgnoreIndex}, {1, 2, 2}));
  const MetricSum iou_sum = metric_named(mask_metrics(), "iou").sum(output, batch),
                  right = accuracy().sum(output, batch);
  EXPECT_EQ(iou_sum.sum, 1);
  EXPECT_EQ(iou_sum.count, 3);
  EXPECT_EQ(right.sum, 1);
  EXPECT_EQ(right.count, 3);
}

}  // namespace
}  // namespace lockstep::masks_test
