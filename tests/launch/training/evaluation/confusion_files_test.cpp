// A confusion matrix as a picture and as a table.
#include "launch/training/evaluation/confusion_files.h"

#include <gtest/gtest.h>

#include "tests/support/files.h"

namespace lockstep::confusion_files_test {
namespace {

using Pixel = std::vector<int>;

Pixel pixel(const ByteImage& image, int64_t y, int64_t x) {
  const auto at = image.bytes.begin() + 3 * (y * image.width + x);
  return {at[0], at[1], at[2]};
}

// Three classes, of which the second is no label; label 3 is beyond the classes.
Confusion example() {
  Confusion c;
  c.classes = 3;
  c.counts = {{{0, 0}, 3}, {{0, 2}, 1}, {{2, 1}, 5}, {{3, 0}, 2}, {{3, 1}, 2}};
  return c;
}

TEST(ConfusionPicture, HasASquareForEachCellByItsShareOfTheRow) {
  const ByteImage image = confusion_picture(example());
  ASSERT_EQ(image.channels, 3);
  ASSERT_EQ(image.height, 4 * 25 + 1);
  ASSERT_EQ(image.width, 3 * 25 + 1);
  ASSERT_EQ(static_cast<int64_t>(image.bytes.size()), image.height * image.width * 3);
  const Pixel white{255, 255, 255}, full{8, 48, 107}, grey{224, 224, 224}, line{160, 160, 160};
  const auto cell = [&](int64_t label, int64_t predicted) {
    return pixel(image, label * 25 + 12, predicted * 25 + 12);
  };
  EXPECT_EQ(cell(0, 0), (Pixel{70, 100, 144})) << "three quarters";
  EXPECT_EQ(cell(0, 1), white);
  EXPECT_EQ(cell(0, 2), (Pixel{193, 203, 218})) << "a quarter";
  EXPECT_EQ(cell(1, 0), grey) << "no such label";
  EXPECT_EQ(cell(1, 2), grey);
  EXPECT_EQ(cell(2, 1), full);
  EXPECT_EQ(cell(3, 0), cell(3, 1));
  EXPECT_EQ(cell(3, 2), white);
  for (int64_t x = 0; x < image.width; ++x) EXPECT_EQ(pixel(image, 25, x), line);
  for (int64_t y = 0; y < image.height; ++y) EXPECT_EQ(pixel(image, y, image.width - 1), line);
  EXPECT_EQ(pixel(image, 1, 1), cell(0, 0));
  EXPECT_EQ(pixel(image, 24, 24), cell(0, 0));
}

TEST(ConfusionPicture, OfManyClassesHasSmallSquares) {
  Confusion c;
  c.classes = 1000;
  c.counts = {{{999, 998}, 1}};
  const ByteImage image = confusion_picture(c);
  EXPECT_EQ(image.height, 1000);
  EXPECT_EQ(image.width, 1000);
  EXPECT_EQ(pixel(image, 999, 998), (Pixel{8, 48, 107}));
  EXPECT_EQ(pixel(image, 999, 997), (Pixel{255, 255, 255}));
  c.classes = kMostPictured + 1;
  test::expect_error(ExitCode::kConfig, {"4097 classes are more than the 4096", ".csv"}, [&] { confusion_picture(c); });
}

TEST(ConfusionPicture, ItsLegendNamesTheOrder) {
  EXPECT_EQ(
      confusion_legend(example(), {"cat", "dog", "red bird"}),
      "rows are labels, 0 to 3 from the top; columns are predicted classes, 0 to 2 from the left; the darker, the "
      "larger the share of the row; 0: cat, 1: dog, 2: red bird");
  EXPECT_EQ(confusion_legend(example(), std::vector<std::string>(101, "x")), confusion_legend(example(), {}));
}

TEST(ConfusionTable, HasTheNamesOfTheClassesThatHaveOne) {
  const test::TemporaryFolder folder;
  const auto table = [&](const std::vector<std::string>& names) {
    write_confusion(folder / "c.csv", example(), names, true);
    std::ifstream file(folder / "c.csv");
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  EXPECT_EQ(table({"cat", "dog", "red, \"bird\""}),
            "label,cat,dog,\"red, \"\"bird\"\"\"\ncat,3,0,1\ndog,0,0,0\n\"red, \"\"bird\"\"\",0,5,0\n3,2,2,0\n");
  EXPECT_EQ(table({}), "label,0,1,2\n0,3,0,1\n1,0,0,0\n2,0,5,0\n3,2,2,0\n");
}

}  // namespace
}  // namespace lockstep::confusion_files_test
