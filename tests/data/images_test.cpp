// Images: what PNG and JPEG files decode to, resizing and augmentation, importing folders, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "core/io/deflate.h"
#include "data/images/augment.h"
#include "data/images/codecs/image_codec.h"
#include "data/import/import.h"
#include "data/import/rearrange.h"
#include "data/import/tables/csv.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/verify.h"
#include "data/streams/loader.h"
#include "data/streams/open_dataset.h"
#include "tests/data/killed_import.h"
#include "tests/support/files.h"

namespace lockstep::images_test {
namespace {

using namespace test;

std::string fixture(const std::string& name) { return content(std::string(LOCKSTEP_TEST_IMAGES) + "/" + name); }

std::string hex_of(const std::vector<uint8_t>& bytes) {
  std::string out;
  for (uint8_t b : bytes) out += {"0123456789abcdef"[b >> 4], "0123456789abcdef"[b & 15]};
  return out;
}

TEST(ImageCodec, DecodesAndResizesAsPillowDoes) {
  std::istringstream lines(fixture("golden.txt"));
  int64_t count = 0;
  for (std::string name, bytes; lines >> name; ++count) {
    int64_t height, width, channels;
    PixelBox box;
    lines >> height >> width >> channels >> box.left >> box.top >> box.right >> box.bottom >> bytes;
    const std::string file = fixture(name);
    const ImageInfo info = image_info(file, name);
    EXPECT_EQ(info.channels, channels) << name;
    const ByteImage image = decode_image(file, channels, name);
    EXPECT_EQ(image.height, info.height) << name;
    EXPECT_EQ(image.width, info.width) << name;
    const ByteImage part = resize(image.bytes.data(), image.height, image.width, channels, box, height, width);
    EXPECT_EQ(hex_of(part.bytes), bytes) << name << " to " << height << " x " << width;
  }
  EXPECT_GT(count, 20);
}

TEST(ImageCodec, GreyBecomesThreeEqualChannelsAndColourIsNotMadeGrey) {
  const ByteImage grey = decode_image(fixture("grey.png"), 1, "g"), wide = decode_image(fixture("grey.png"), 3, "g");
  for (size_t i = 0; i < wide.bytes.size(); ++i) ASSERT_EQ(wide.bytes[i], grey.bytes[i / 3]);
  expect_error(ExitCode::kBadData, {"c.png", "colour"}, [] { decode_image(fixture("rgb.png"), 1, "c.png"); });
}

TEST(ImageCodec, WritesPngThatComesBack) {
  for (const char* name : {"rgb.png", "grey.png"}) {
    const int64_t channels = image_info(fixture(name), name).channels;
    const ByteImage image = decode_image(fixture(name), channels, name);
    EXPECT_EQ(decode_image(encode_png(image), channels, "again").bytes, image.bytes);
  }
}

std::string big_endian(uint32_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

std::string png_chunk(const std::string& type, const std::string& bytes) {
  const std::string checked = type + bytes;
  return big_endian(static_cast<uint32_t>(bytes.size())) + checked + big_endian(crc32(checked.data(), checked.size()));
}

TEST(ImageCodec, PngIsTurnedAsItsExifSays) {
  const std::string plain = encode_png({2, 3, 1, {0, 1, 2, 3, 4, 5}});
  const std::vector<std::vector<uint8_t>> turned = {// by Pillow's ImageOps.exif_transpose
                                                    {0, 1, 2, 3, 4, 5}, {2, 1, 0, 5, 4, 3}, {5, 4, 3, 2, 1, 0},
                                                    {3, 4, 5, 0, 1, 2}, {0, 3, 1, 4, 2, 5}, {3, 0, 4, 1, 5, 2},
                                                    {5, 2, 4, 1, 3, 0}, {2, 5, 1, 4, 0, 3}};
  for (size_t i = 0; i < turned.size(); ++i) {
    using namespace std::string_literals;
    std::string exif = "MM\0*\0\0\0\10\0\1\1\22\0\3\0\0\0\1\0\0\0\0\0\0\0\0"s;
    exif[19] = static_cast<char>(i + 1);
    for (const size_t at : {size_t{33}, plain.size() - 12}) {  // behind the header, or behind the pixels
      std::string png = plain;
      png.insert(at, png_chunk("eXIf", exif));
      const ImageInfo info = image_info(png, "x.png");
      const ByteImage image = decode_image(png, 1, "x.png"), mask = decode_mask(png, "x.png");
      EXPECT_EQ(info.height, i < 4 ? 2 : 3);
      EXPECT_EQ(std::pair(image.height, image.width), std::pair(info.height, info.width));
      EXPECT_EQ(image.bytes, turned[i]) << "orientation " << i + 1;
      EXPECT_EQ(mask.bytes, turned[i]);
      EXPECT_EQ(mask.height, info.height);
    }
  }
}

// A grey PNG of 16 bits, one row, with stored deflate.
std::string png_of_16_bits(const std::vector<uint16_t>& row) {
  using namespace std::string_literals;
  std::string values = "\0"s, data;
  for (uint16_t value : row) values += {static_cast<char>(value >> 8), static_cast<char>(value)};
  uint32_t a = 1, b = 0;
  for (char c : values) a = (a + static_cast<uint8_t>(c)) % 65521, b = (b + a) % 65521;
  const auto size = static_cast<uint16_t>(values.size()), inverse = static_cast<uint16_t>(~size);
  for (uint16_t n : {size, inverse}) data += {static_cast<char>(n), static_cast<char>(n >> 8)};
  return "\x89PNG\r\n\x1a\n"s +
         png_chunk("IHDR", big_endian(static_cast<uint32_t>(row.size())) + "\0\0\0\1\20\0\0\0\0"s) +
         png_chunk("IDAT", "\x78\1\1"s + data + values + big_endian(b << 16 | a)) + png_chunk("IEND", "");
}

TEST(ImageCodec, ValuesOf16BitsKeepTheHigherEight) {
  WideValues wide;
  const ByteImage image = decode_image(png_of_16_bits({0, 7, 255, 256, 0x1234, 65535}), 1, "x.png", &wide);
  EXPECT_EQ(image.bytes, (std::vector<uint8_t>{0, 0, 0, 1, 0x12, 255}));
  EXPECT_EQ(wide.images, 1);
  EXPECT_EQ(wide.largest, 65535);
  EXPECT_EQ(wide.above_zero, 5);
  EXPECT_EQ(wide.lost, 2);
  decode_image(fixture("grey.png"), 1, "grey.png", &wide);
  EXPECT_EQ(wide.images, 1);
}

TEST(ImageCodec, RefusesEveryTruncation) {
  for (const char* name : {"rgb.png", "palette.png", "rgb.jpg", "progressive.jpg", "turned6.jpg"}) {
    const std::string whole = fixture(name);
    for (size_t size = 0; size + 2 < whole.size(); ++size)
      expect_error(ExitCode::kBadData, {"some.image: is "},
                   [&] { decode_image(whole.substr(0, size), 3, "some.image"); });
  }
}

TEST(ImageCodec, RefusesABombBeforeItAllocates) {
  std::string png = fixture("rgb.png");
  // The header's width and height: 65,535 x 65,535. Its checksum is wrong then, which libpng tells first; a JPEG has
  // none.
  std::string jpeg = fixture("grey.jpg");
  const size_t frame = jpeg.find("\xff\xc0");
  ASSERT_NE(frame, jpeg.npos);
  jpeg.replace(frame + 5, 4, "\xff\xdc\xff\xdc");
  expect_error(ExitCode::kBadData, {"bomb.jpg", "65500 x 65500", "256 MiB"},
               [&] { decode_image(jpeg, 1, "bomb.jpg"); });
  png[18] ^= 0x40;
  expect_error(ExitCode::kBadData, {"bomb.png"}, [&] { decode_image(png, 3, "bomb.png"); });
  expect_error(ExitCode::kBadData, {"x.png", "neither"}, [] { decode_image("GIF89a", 3, "x.png"); });
}

class ImagesTest : public ::testing::Test {
 protected:
  void put(const std::string& name, const std::string& bytes) {
    const std::string path = folder_ / ("in/" + name);
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    write_file(path, bytes);
  }
  // 20 images of 13 x 9 in two subfolders.
  void put_images() {
    const ByteImage rgb = decode_image(fixture("rgb.png"), 3, "rgb.png");
    for (int i = 0; i < 20; ++i) {
      ByteImage image = rgb;
      for (uint8_t& b : image.bytes) b = static_cast<uint8_t>(b ^ i);
      put((i % 2 ? "dog/" : "cat/") + std::to_string(i) + ".png", encode_png(image));
    }
  }
  void refuse(std::initializer_list<std::string> parts, const ImageOptions& images = {}) {
    expect_error(ExitCode::kBadData, parts, [&] { import_images(in_, out_, images); });
    EXPECT_FALSE(std::filesystem::exists(out_));
  }
  DataOptions data_options() {
    DataOptions o;
    o.path = out_;
    o.validation = 0.2;
    return o;
  }

  TemporaryFolder folder_;
  std::string in_ = folder_ / "in", out_ = folder_ / "out.h5";
};

TEST_F(ImagesTest, AnImportThatIsKilledGoesOn) {
  put_images();
  for (bool encoded : {false, true}) {
    const test::Import import = [&](const ImportOptions& o) { import_images(in_, out_, {.keep_encoded = encoded}, o); };
    import({.threads = 1});
    const std::string whole = content(out_);
    std::filesystem::remove(out_);
    EXPECT_GE(kill_until_complete(out_, import), 2);
    EXPECT_TRUE(content(out_) == whole);
    std::filesystem::remove(out_);
    ASSERT_TRUE(import_until_killed(import, 9));
    put("cat/0.png", content(in_ + "/cat/2.png"));  // another image: it begins anew
    import({});
    EXPECT_EQ(inspect_dataset(out_).duplicates, 1);
    std::filesystem::remove(out_);
    put_images();
  }
}

TEST_F(ImagesTest, AnImageThatIsReplacedBetweenThePassesIsRefused) {
  const ByteImage image = decode_image(fixture("rgb.png"), 3, "rgb.png");
  ByteImage other = image;
  for (uint8_t& b : other.bytes) b ^= 1;
  ASSERT_EQ(encode_png(image).size(), encode_png(other).size()) << "a size alone would tell";
  const auto both = [&](int64_t done, int64_t total) {  // whichever is the second one
    for (const char* name : {"/cat/0.png", "/cat/1.png"}) replaces_once(in_ + name, encode_png(other))(done, total);
  };
  for (bool encoded : {false, true}) {
    for (const char* name : {"cat/0.png", "cat/1.png"}) put(name, encode_png(image));
    expect_error(ExitCode::kBadData, {".png: changed during the import"},
                 [&] { import_images(in_, out_, {.keep_encoded = encoded}, {.progress = both, .threads = 1}); });
    EXPECT_FALSE(std::filesystem::exists(out_));
  }
}

TEST_F(ImagesTest, ImportsBySubfolderInAnOrderThatMixesLabels) {
  put_images();
  import_images(in_, out_);
  const auto file = open_dataset_file(out_, 1 << 20);
  EXPECT_EQ(file->header.images, (Shape{20, 9, 13, 3}));
  EXPECT_EQ(file->header.class_names, (std::vector<std::string>{"cat", "dog"}));
  std::multiset<std::string> there, wanted;
  const ByteImage rgb = decode_image(fixture("rgb.png"), 3, "rgb.png");
  for (int i = 0; i < 20; ++i) {
    file->visit_image(i, [&](const uint8_t* p, int64_t h, int64_t w) {
      there.insert(std::string(p, p + h * w * 3) + std::to_string(file->labels[static_cast<size_t>(i)]));
    });
    std::string pixels;
    for (uint8_t b : rgb.bytes) pixels.push_back(static_cast<char>(b ^ i));
    wanted.insert(pixels + std::to_string(i % 2));
  }
  EXPECT_EQ(there, wanted);
  EXPECT_FALSE(std::is_sorted(file->labels.begin(), file->labels.end())) << "the last part has one label alone";
  const DatasetReport report = inspect_dataset(out_);
  EXPECT_EQ(report.per_class, (std::vector<int64_t>{10, 10}));
  EXPECT_EQ(report.count, 20);
}

TEST_F(ImagesTest, EncodedImagesGiveTheSamplesThatPixelsGive) {
  put_images();
  import_images(in_, out_);
  const Datasets pixels = open_datasets(data_options(), 1);
  import_images(in_, folder_ / "encoded.h5", {.keep_encoded = true});
  DataOptions o = data_options();
  o.path = folder_ / "encoded.h5";
  expect_error(ExitCode::kConfig, {"data.image.height"}, [&] { open_datasets(o, 1); });
  o.image = {9, 13};
  const Datasets encoded = open_datasets(o, 1);
  ASSERT_EQ(pixels.train->spec().input().shape, encoded.train->spec().input().shape);
  EXPECT_EQ(inspect_dataset(o.path).count, 20);
  std::vector<float> a(9 * 13 * 3), b(a);
  int32_t label_a, label_b;
  for (int64_t i = 0; i < pixels.train->size(); ++i) {
    pixels.train->read(0, i, {pixels.train->spec().tensors, std::array<void*, 2>{a.data(), &label_a}});
    encoded.train->read(0, i, {encoded.train->spec().tensors, std::array<void*, 2>{b.data(), &label_b}});
    EXPECT_EQ(a, b) << i;
    EXPECT_EQ(label_a, label_b) << i;
  }
}

TEST_F(ImagesTest, InspectFindsImagesThatAreThereTwice) {
  put_images();
  put("dog/again.png", content(in_ + "/cat/0.png"));
  for (bool encoded : {false, true}) {
    import_images(in_, out_, {.keep_encoded = encoded}, {.force = true});
    const DatasetReport report = inspect_dataset(out_);
    EXPECT_EQ(report.duplicates, 1);
    EXPECT_EQ(report.contradictions, 1) << "a cat, and a dog";
    ASSERT_EQ(report.repeats.size(), 1u);
    EXPECT_LT(report.repeats[0].second, report.repeats[0].first);
  }
}

TEST_F(ImagesTest, MixedSizesAndKindsBecomeOneSize) {
  put("a/1.png", fixture("rgb.png"));
  put("a/2.JPG", fixture("turned6.jpg"));
  put("b/3.png", fixture("grey.png"));
  put("b/4.jpeg", fixture("progressive.jpg"));
  import_images(in_, out_);
  EXPECT_TRUE(open_dataset_file(out_, 1 << 20)->header.encoded);
  DataOptions o = data_options();
  o.image = {6, 6};
  const Datasets data = open_datasets(o, 1);
  EXPECT_EQ(data.train->spec().input().shape, (Shape{6, 6, 3}));
  EXPECT_EQ(data.train->size() + data.validation->size(), 4);
}

TEST_F(ImagesTest, EncodedImagesAreSplitMergedAndCutAsTheyAre) {
  put_images();
  import_images(in_, out_, {.keep_encoded = true});
  const std::string merged = folder_ / "merged.h5", twice = folder_ / "twice.h5";
  std::vector<SplitPart> parts{{folder_ / "a.h5", 0.75}, {folder_ / "b.h5", 0.25}};
  split_dataset(out_, parts, {.by_label = true});
  merge_datasets({parts[0].path, parts[1].path}, merged, {});
  const auto files_in = [](const std::string& path) {
    const auto file = open_dataset_file(path, 0);
    std::multiset<std::string> out;
    for (int64_t i = 0; i < file->header.images[0]; ++i)
      out.insert(file->encoded_file(i) + std::to_string(file->labels[static_cast<size_t>(i)]));
    return out;
  };
  EXPECT_EQ(files_in(merged), files_in(out_));
  EXPECT_EQ(files_in(parts[1].path).size(), 5u);
  const auto whole = open_dataset_file(out_, 0), again = open_dataset_file(merged, 0);
  EXPECT_EQ(again->header.mean, whole->header.mean) << "sums of bytes are exact in any order";
  EXPECT_EQ(again->header.stddev, whole->header.stddev);
  merge_datasets({out_, merged}, twice, {.keep_normalization = true});
  EXPECT_EQ(open_first_samples(twice, 0, 20)->header.identity, whole->header.identity);
  EXPECT_TRUE(verify_dataset(twice).whole());
}

TEST_F(ImagesTest, SmallValuesOf16BitsAreWarnedOf) {
  const auto said = [&](const std::vector<uint16_t>& values) {
    for (const char* name : {"a/1.png", "b/2.png"}) put(name, png_of_16_bits(values));
    ::testing::internal::CaptureStderr();
    import_images(in_, out_, {}, {.force = true});
    return ::testing::internal::GetCapturedStderr();
  };
  const auto holds = [](const std::string& text, const std::string& part) {
    EXPECT_NE(text.find(part), text.npos) << text << "\nlacks: " << part;
  };
  holds(said({0, 99, 1, 0}),
        "2 images have 16 bits, of which the higher 8 are stored: of values up to 99 that leaves 1 of "
        "256 levels, and 4 of 4 values above 0 become 0; scale them to 8 bits first, such as value * "
        "255 / 99");
  holds(said({4095, 1000, 2000, 3000}), "of values up to 4095 that leaves 16 of 256 levels");
  holds(said({65535, 100, 200, 90}), "6 of 8 values above 0 become 0");  // 65535 stands for none
  EXPECT_EQ(said({65535, 30000, 20, 0}), "");
  EXPECT_EQ(said({0, 0, 0, 0}), "");
}

TEST_F(ImagesTest, FoldersThatAreNoClassesAreRefusedOrLeftOut) {
  const std::string image = encode_png({1, 2, 1, {0, 1}});
  const auto set_files = [&](std::initializer_list<std::string> names) {
    std::filesystem::remove_all(in_);
    for (const std::string& name : names) put(name, image);
  };
  const auto said = [&] {
    ::testing::internal::CaptureStderr();
    import_images(in_, out_, {}, {.force = true});
    return ::testing::internal::GetCapturedStderr();
  };
  set_files({"train/a/1.png", "val/a/1.png", "test/b/1.png"});
  refuse({"in: by their names its subfolders are parts of the data, not classes: test, train, val",
          "lockstep data import images " + in_ + "/train train.h5, then lockstep data import images " + in_ +
              "/test test.h5 --like train.h5",
          "--labels"});
  for (const char* name : {"Validation", "dev", "valid", "TEST", "val2017", "test_set"}) {
    set_files({"Training/a/1.png", str(name, "/a/1.png")});
    refuse({"not classes", "Training", name});
  }
  set_files({"train/a/1.png"});
  refuse({"in/train train.h5"});
  set_files({"bus/1.png", "train/2.png", "valids/3.png", "invalid/4.png"});
  EXPECT_EQ(said(), "");
  EXPECT_EQ(inspect_dataset(out_).classes, 4);
  set_files({"cat/1.png", "val/cat/2.png"});
  EXPECT_NE(said().find("its subfolder val is imported as a class, though it has subfolders and is named like a split"),
            std::string::npos);
  set_files({"cat/1.png", "dog/2.png", ".ipynb_checkpoints/3.png", "cat/@eaDir/1.png/4.png", "__MACOSX/cat/5.png"});
  const std::string left_out = said();
  EXPECT_NE(left_out.find("3 folders that programs keep for themselves were left out, such as .ipynb_checkpoints"),
            std::string::npos)
      << left_out;
  EXPECT_EQ(inspect_dataset(out_).class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(inspect_dataset(out_).per_class, (std::vector<int64_t>{1, 1}));
}

TEST_F(ImagesTest, TakesLabelsFromATable) {
  put_images();
  write_file(folder_ / "labels.csv",
             "\xEF\xBB\xBF"
             "label,file\r\n10,cat/0.png\r\n\"9\",\"dog/1.png\"\r\n 10 ,cat/2.png\r\n");
  import_images(in_, out_, {.labels = folder_ / "labels.csv"});
  const auto file = open_dataset_file(out_, 1 << 20);
  EXPECT_EQ(file->header.class_names, (std::vector<std::string>{"9", "10"})) << "as numbers, without white space";
  EXPECT_EQ(file->header.images[0], 3);
  EXPECT_TRUE(file->weights.empty());
}

TEST_F(ImagesTest, TakesWeightsFromTheTableOfLabels) {
  put_images();
  const std::string table = folder_ / "labels.csv";
  const ImageOptions how{.labels = table, .weight = "trust"};
  write_file(table, "label,trust,file\n10,0.25,cat/0.png\n9,3,dog/1.png\n");
  import_images(in_, out_, how);
  const auto file = open_dataset_file(out_, 1 << 20);
  ASSERT_EQ(file->labels.size(), 2u);
  for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(file->weight_of(i), file->labels[static_cast<size_t>(i)] == 0 ? 3 : 0.25f);
  write_file(table, "label,trust,file\n10,0.25,cat/0.png\n9,none,dog/1.png\n");
  expect_error(ExitCode::kBadData, {"labels.csv:3: column 'trust' holds 'none', which is no weight"},
               [&] { import_images(in_, out_, how, {.force = true}); });
  write_file(table, "label,file\n10,cat/0.png\n");
  expect_error(ExitCode::kBadData, {"labels.csv:1: has no column 'trust'", "'trust' for --weight"},
               [&] { import_images(in_, out_, how, {.force = true}); });
}

TEST_F(ImagesTest, LinksToFoldersAreClassesAndNothingWithinThem) {
  namespace fs = std::filesystem;
  const std::string elsewhere = folder_ / "elsewhere", in = folder_ / "linked";
  fs::create_directories(elsewhere + "/deep");
  fs::create_directories(in + "/cat");
  fs::create_directories(in + "/empty");
  const std::string image = encode_png({1, 2, 1, {0, 1}});
  for (const std::string& path : {elsewhere + "/1.png", elsewhere + "/deep/2.png", in + "/cat/3.png"})
    write_file(path, image);
  write_file(in + "/cat/._3.png", "of macOS");
  fs::create_directory_symlink(elsewhere, in + "/dog");
  import_images(in, folder_ / "linked.h5");
  const DatasetReport report = inspect_dataset(folder_ / "linked.h5");
  EXPECT_EQ(report.class_names, (std::vector<std::string>{"cat", "dog"}));
  EXPECT_EQ(report.per_class, (std::vector<int64_t>{1, 2}));
  fs::create_directory_symlink(in, elsewhere + "/back");
  expect_error(ExitCode::kBadData, {"linked/dog/back: is a link to a folder", "subfolders"},
               [&] { import_images(in, folder_ / "linked.h5", {}, {.force = true}); });
}

TEST_F(ImagesTest, BadImagesCanBeLeftOut) {
  const std::string in = folder_ / "some";
  std::filesystem::create_directories(in + "/a");
  const std::string image = encode_png({8, 8, 1, std::vector<uint8_t>(64, 3)});
  for (const char* name : {"/a/1.png", "/a/2.png"}) write_file(in + name, image);
  write_file(in + "/a/cut.png", image.substr(0, image.size() - 20));
  write_file(in + "/a/no.jpg", "no image at all");
  const auto import = [&](int64_t skip) {
    import_images(in, folder_ / "some.h5", {.skip_bad = skip}, {.force = true});
    return inspect_dataset(folder_ / "some.h5").count;
  };
  EXPECT_EQ(import(2), 2);
  EXPECT_EQ(import(9), 2);
  expect_error(ExitCode::kBadData, {"some/a/", "1 bad images before it were left out"}, [&] { import(1); });
  expect_error(ExitCode::kBadData, {"some/a/"}, [&] { import(0); });
  for (const char* name : {"/a/1.png", "/a/2.png"}) write_file(in + name, "gone");
  expect_error(ExitCode::kBadData, {"some: all 4 images were left out"}, [&] { import(9); });
}

TEST_F(ImagesTest, RefusesWhatCannotBeImported) {
  std::filesystem::create_directories(in_);
  refuse({"holds no PNG or JPEG"});
  put("top.png", fixture("rgb.png"));
  refuse({"top.png", "subfolder"});
  const auto table = [&](const std::string& text) { write_file(folder_ / "t.csv", text); };
  const ImageOptions by_table{.labels = folder_ / "t.csv"};
  table("name,label\n");
  refuse({"t.csv:1", "'file'"}, by_table);
  table("file,label\ntop.png,\n");
  refuse({"t.csv:2", "the cell 'label' is empty"}, by_table);
  table("file,label\n../top.png,a\n");
  refuse({"t.csv:2", "within the folder"}, by_table);
  table("file,label\ntop.png,a\ntop.png,b\n");
  refuse({"t.csv", "top.png twice"}, by_table);
  table("file,label\ntop.png,a,b\n");
  refuse({"t.csv:2", "3 cells", "2"}, by_table);
  put("top.png", fixture("rgb.png").substr(0, 100));
  table("file,label\ntop.png,a\n");
  refuse({"in/top.png", "damaged"}, by_table);
}

TEST(Csv, ReadsQuotesAndNamesTheLineOfWhatIsWrong) {
  TemporaryFolder folder;
  const auto rows_of = [&](const std::string& text) {
    write_file(folder / "t.csv", text);
    CsvReader reader(folder / "t.csv", ',');
    std::vector<std::vector<std::string>> rows;
    for (std::vector<std::string> cells; reader.next(cells);) rows.push_back(cells);
    return rows;
  };
  using Rows = std::vector<std::vector<std::string>>;
  EXPECT_EQ(rows_of("a,b\n\n1,\"x,\"\"y\"\"\nz\"\r\n,"), (Rows{{"a", "b"}, {"1", "x,\"y\"\nz"}, {"", ""}}));
  EXPECT_EQ(rows_of(""), Rows{});
  expect_error(ExitCode::kBadData, {"t.csv:3", "quote"}, [&] { rows_of("a\n1\nx\"y\n"); });
  expect_error(ExitCode::kBadData, {"line 2", "never closed"}, [&] { rows_of("a\n\"x\n\n"); });
  expect_error(ExitCode::kBadData, {"t.csv:2", "closing quote"}, [&] { rows_of("a\n\"x\"y\n"); });
  expect_error(ExitCode::kBadData, {"t.csv:2", "zero"}, [&] { rows_of(std::string("a\n\0\n", 4)); });
}

TEST(Csv, QuotesInTabSeparatedTextSwallowNoRows) {
  TemporaryFolder folder;
  std::string said;
  const auto rows_of = [&](const std::string& text) {
    write_file(folder / "t.tsv", text);
    CsvReader reader(folder / "t.tsv", '\t');
    std::vector<std::vector<std::string>> rows;
    ::testing::internal::CaptureStderr();
    for (std::vector<std::string> cells; reader.next(cells);) rows.push_back(cells);
    said = ::testing::internal::GetCapturedStderr();
    return rows;
  };
  using Rows = std::vector<std::vector<std::string>>;
  const std::string head = "s\ty\n";
  EXPECT_EQ(rows_of(head + "\"\t1\nplain\t0\n\"\t1\nx\t0\n"),
            (Rows{{"s", "y"}, {"\"", "1"}, {"plain", "0"}, {"\"", "1"}, {"x", "0"}}));
  EXPECT_NE(
      said.find(
          "t.tsv: a quote at the beginning of a cell that is not quoted as a whole is kept as text, first in line 2"),
      said.npos)
      << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 1) << said;
  EXPECT_EQ(rows_of(head + "0\t\"\r\n1\t\"\r\n"), (Rows{{"s", "y"}, {"0", "\""}, {"1", "\""}})) << "the last column";
  EXPECT_EQ(rows_of(head + "\"\t\"\n"), (Rows{{"s", "y"}, {"\"", "\""}})) << "two cells";
  EXPECT_EQ(rows_of(head + "\"never closed\t1\nx\t0"), (Rows{{"s", "y"}, {"\"never closed", "1"}, {"x", "0"}}));
  EXPECT_EQ(rows_of(head + "\"Yes\" she said\t1\n"), (Rows{{"s", "y"}, {"\"Yes\" she said", "1"}}));
  EXPECT_EQ(rows_of(head + "a 5\" disk, \"x\"\t1\n"), (Rows{{"s", "y"}, {"a 5\" disk, \"x\"", "1"}}));
  // What quotes its cells, as spreadsheets do.
  const Rows quoted{{"s", "y"}, {"a\tb", "1"}, {"two\nlines", "0"}, {"0", "two\nlines"}, {"\"q\"", ""}};
  EXPECT_EQ(rows_of(head + "\"a\tb\"\t1\n\"two\nlines\"\t0\n0\t\"two\nlines\"\n\"\"\"q\"\"\"\t\"\"\n"), quoted);
  EXPECT_EQ(said, "");
  write_file(folder / "t.tsv", head + "\"\t1\nx\t0\nno row\n\"\t1\n");
  CsvReader reader(folder / "t.tsv", '\t');
  std::vector<std::string> cells;
  reader.next(cells);
  expect_error(ExitCode::kBadData,
               {"t.tsv:2: column 1: a quoted cell runs over 4 lines, some of which are rows by themselves", "doubled"},
               [&] { reader.next(cells); });
  std::string large = head;  // quotes in one block of the input, and the next one in another
  for (int i = 0; i < 300000; ++i) large += i % 100000 == 7 ? "\"\t1\n" : "words\t0\n";
  const Rows many = rows_of(large);
  ASSERT_EQ(many.size(), 300001u);
  EXPECT_EQ(std::count(many.begin(), many.end(), std::vector<std::string>{"\"", "1"}), 3);
}

TEST(Csv, BytesAreCharactersInTheEncodingOfTheTable) {
  TemporaryFolder folder;
  const auto cells_of = [&](const std::string& text, TextEncoding encoding) {
    write_file(folder / "t.csv", text);
    CsvReader reader(folder / "t.csv", ',', encoding);
    std::vector<std::string> all;
    for (std::vector<std::string> cells; reader.next(cells);) all.insert(all.end(), cells.begin(), cells.end());
    return all;
  };
  using Cells = std::vector<std::string>;
  const std::string latin = "caf\xe9,\xf6\n\"\xe9,\"\"\xf6\",x\n";
  EXPECT_EQ(cells_of(latin, TextEncoding::kLatin1), (Cells{"café", "ö", "é,\"ö", "x"}));
  EXPECT_EQ(cells_of("\x80\x9f\x93,\xff\n", TextEncoding::kWindows1252), (Cells{"€Ÿ“", "ÿ"}));
  EXPECT_EQ(cells_of("café,漢字🙂\n", TextEncoding::kUtf8), (Cells{"café", "漢字🙂"}));
  const auto refuse = [&](std::initializer_list<std::string> parts, const std::string& text, TextEncoding encoding) {
    expect_error(ExitCode::kBadData, parts, [&] { cells_of(text, encoding); });
  };
  refuse({"t.csv:1: column 1: byte 3 of the table (0xE9) is invalid UTF-8", "--encoding latin-1"}, latin,
         TextEncoding::kUtf8);
  refuse({"t.csv:2: column 1: byte 12 of the table (0xF6)"}, "a,b\n\"x,\"\"y\"\"\xf6\",x\n", TextEncoding::kUtf8);
  refuse({"t.csv:2: column 1: byte 5 of the table (0xC3)"},
         "\xEF\xBB\xBF"
         "a\n\xc3\n",
         TextEncoding::kUtf8);
  refuse({"byte 1 of the table (0x81) is no character of windows-1252"}, "a\x81\n", TextEncoding::kWindows1252);
  // Every byte, as Python's codecs latin-1 and cp1252 decode them: U+0080 and U+20AC, ...
  std::string bytes;
  for (int b = 1; b < 256; ++b)
    if (b != ',' && b != '"' && b != '\n' && b != '\r') bytes += static_cast<char>(b);
  const std::string decoded = cells_of(bytes + "\n", TextEncoding::kLatin1)[0];
  EXPECT_EQ(decoded.size(), bytes.size() + 128) << "each of the upper half takes two bytes in UTF-8";
}

ByteImage square(int64_t side) {
  ByteImage image{side, side, 3, {}};
  for (int64_t i = 0; i < side * side * 3; ++i) image.bytes.push_back(static_cast<uint8_t>(i * 37 + i / 7));
  return image;
}

TEST(Augmentation, IsAFunctionOfSeedEpochAndSample) {
  AugmentOptions o;
  o.flip = 0.5, o.shift = 3, o.rotate = 20, o.brightness = o.contrast = o.saturation = 0.4, o.cutout = 5;
  std::set<std::vector<uint8_t>> different;
  for (uint64_t seed : {1, 2})
    for (int64_t epoch : {0, 1})
      for (int64_t index : {0, 1}) {
        ByteImage a = square(16), b = square(16);
        Augmentation(o, seed).apply(a, epoch, index);
        Augmentation(o, seed).apply(b, epoch, index);
        EXPECT_EQ(a.bytes, b.bytes);
        different.insert(a.bytes);
      }
  EXPECT_EQ(different.size(), 8u);
}

// Any machine, compiler and release gives these bits.
TEST(Augmentation, KeepsItsBits) {
  AugmentOptions o;
  o.crop_area = 0.3, o.flip = 0.5, o.shift = 3, o.rotate = 20, o.cutout = 5;
  o.brightness = o.contrast = o.saturation = 0.4;
  const Augmentation augmentation(o, 7);
  Hasher128 hasher;
  for (int64_t i = 0; i < 50; ++i) {
    const ByteImage from = square(24);
    const PixelBox box = augmentation.box(24, 24, 16, 16, 1, i);
    ByteImage image = resize(from.bytes.data(), 24, 24, 3, box, 16, 16);
    augmentation.apply(image, 1, i);
    hasher.update(image.bytes.data(), image.bytes.size());
  }
  EXPECT_EQ(to_hex(hasher.digest()), "3056ae23c3cc0d834a939f6ff413770c");
}

TEST(Augmentation, EachChangeIsWhatItSays) {
  const ByteImage from = square(12);
  const auto pixel = [](const ByteImage& i, int64_t x, int64_t y, int64_t c) {
    return x < 0 || y < 0 || x >= i.width || y >= i.height ? 0
                                                           : i.bytes[static_cast<size_t>((y * i.width + x) * 3 + c)];
  };
  ByteImage flipped = from;
  Augmentation({.flip = 1}, 1).apply(flipped, 0, 0);
  for (int64_t y = 0; y < 12; ++y)
    for (int64_t x = 0; x < 12; ++x)
      for (int64_t c = 0; c < 3; ++c) ASSERT_EQ(pixel(flipped, x, y, c), pixel(from, 11 - x, y, c));
  std::set<std::pair<int64_t, int64_t>> shifts;
  for (int64_t i = 0; i < 200; ++i) {
    ByteImage shifted = from;
    Augmentation({.shift = 1}, 1).apply(shifted, 0, i);
    int64_t matches = 0;
    for (int64_t dy = -1; dy <= 1; ++dy)
      for (int64_t dx = -1; dx <= 1; ++dx) {
        bool same = true;
        for (int64_t p = 0; p < 12 * 12 * 3; ++p)
          same = same && shifted.bytes[static_cast<size_t>(p)] == pixel(from, p / 3 % 12 + dx, p / 36 + dy, p % 3);
        if (same) ++matches, shifts.emplace(dx, dy);
      }
    ASSERT_EQ(matches, 1);
  }
  EXPECT_EQ(shifts.size(), 9u);
  ByteImage cut = from;
  Augmentation({.cutout = 4}, 1).apply(cut, 0, 3);
  int64_t changed = 0;
  for (size_t i = 0; i < cut.bytes.size(); ++i) {
    if (cut.bytes[i] == from.bytes[i]) continue;
    EXPECT_EQ(cut.bytes[i], 0);
    ++changed;
  }
  EXPECT_GT(changed, 0);
  EXPECT_LE(changed, 4 * 4 * 3);
}

TEST_F(ImagesTest, AugmentedStepsAreTheSameForEveryNumberOfRanksAndThreadsAndAfterAResume) {
  put_images();
  import_images(in_, out_);
  DataOptions o = data_options();
  o.augment.shift = 2, o.augment.rotate = 15, o.augment.flip = 0.5, o.augment.crop_area = 0.5;
  const Datasets data = open_datasets(o, 5);
  // The hashes of the samples of steps 2 to 7, in the order of their micro-batches.
  const auto hashes_of = [&](int size, int threads, bool resumed) {
    std::map<std::pair<int64_t, int64_t>, Hash128> out;
    for (int rank = 0; rank < size; ++rank) {
      LoaderOptions l{.batch_global = 6, .batch_micro = 2, .seed = 5, .rank = rank, .size = size, .threads = threads};
      if (resumed) l.start = {0, 12};
      Loader loader(*data.train, l);
      for (int64_t step = resumed ? 2 : 0; step < 8; ++step) {
        const StepBatch batch = loader.next();
        for (const MicroBatch& m : batch.mine) {
          const Tensor& t = m.batch.tensors().front().second;
          if (step >= 2) out[{step, m.index}] = hash128(t.read(), static_cast<size_t>(t.bytes()));
        }
      }
    }
    return out;
  };
  const auto expected = hashes_of(1, 0, false);
  for (int size : {1, 2, 3})
    for (int threads : {0, 3})
      for (bool resumed : {false, true}) EXPECT_EQ(hashes_of(size, threads, resumed), expected);
  // Validation is not changed.
  DataOptions plain = data_options();
  const Datasets without = open_datasets(plain, 5);
  std::vector<float> a(9 * 13 * 3), b(a);
  int32_t label;
  data.validation->read(0, 0, {data.validation->spec().tensors, std::array<void*, 2>{a.data(), &label}});
  without.validation->read(0, 0, {without.validation->spec().tensors, std::array<void*, 2>{b.data(), &label}});
  EXPECT_EQ(a, b);
}

}  // namespace
}  // namespace lockstep::images_test
