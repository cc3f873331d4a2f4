// HDF5 files of other programs, read in place: values are those that h5py wrote, and a change is noticed.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <filesystem>
#include <limits>
#include <set>

#include "data/import/import.h"
#include "data/samples/dataset_file.h"
#include "data/samples/foreign_file.h"
#include "data/samples/inspect.h"
#include "data/streams/open_dataset.h"
#include "tests/data/make_files.h"

namespace lockstep::foreign_test {
namespace {

using namespace test;

constexpr size_t kSamples = 40;

class ForeignTest : public ::testing::Test {
 protected:
  ForeignTest() { std::filesystem::copy_file(std::string(LOCKSTEP_FOREIGN) + "/foreign.h5", path_); }

  struct Read {
    std::vector<std::vector<float>> values;
    std::vector<int32_t> labels;
    Hash128 identity;
  };
  Read read(const std::string& samples, const std::string& labels) const {
    DataOptions o;
    o.path = path_;
    o.hdf5 = {samples, labels};
    o.measured = DataPart::kAll;
    const Datasets data = open_datasets(o, 1);
    Read out;
    for (int64_t i = 0; i < data.train->size(); ++i) {
      out.values.emplace_back(static_cast<size_t>(data.train->spec().input().shape.numel()));
      data.train->read(
          0, i,
          {data.train->spec().tensors, std::array<void*, 2>{out.values.back().data(), &out.labels.emplace_back()}});
    }
    out.identity = data.train->identity();
    return out;
  }
  // Bytes as images are normalised, of a value at each index of the array.
  template <class Value>
  static std::vector<std::vector<float>> normalised(size_t values, size_t channels, double scale, Value value) {
    std::vector<double> mean(channels), square(channels);
    const double count = static_cast<double>(kSamples * values / channels);
    for (size_t i = 0; i < kSamples * values; ++i) mean[i % channels] += value(i) * scale / count;
    for (size_t i = 0; i < kSamples * values; ++i)
      square[i % channels] += std::pow(value(i) * scale - mean[i % channels], 2) / count;
    std::vector<std::vector<float>> out(kSamples);
    for (size_t i = 0; i < kSamples * values; ++i)
      out[i / values].push_back(
          static_cast<float>((value(i) * scale - mean[i % channels]) / std::sqrt(square[i % channels])));
    return out;
  }
  static void expect_close(const std::vector<std::vector<float>>& a, const std::vector<std::vector<float>>& b,
                           double most) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].size(), b[i].size());
      for (size_t j = 0; j < a[i].size(); ++j) ASSERT_NEAR(a[i][j], b[i][j], most) << i << ", " << j;
    }
  }
  void refused(ExitCode code, std::initializer_list<std::string> parts, const std::string& samples,
               const std::string& labels) const {
    expect_error(code, parts, [&] { open_foreign_file(path_, samples, labels, 1 << 20); });
  }

  TemporaryFolder folder_;
  std::string path_ = folder_ / "foreign.h5";
};

TEST_F(ForeignTest, ImagesAndFeaturesAreWhatH5pyWrote) {
  std::vector<int32_t> labels(kSamples);
  for (size_t i = 0; i < kSamples; ++i) labels[i] = static_cast<int32_t>(i % 4);
  const Read packed = read("/images/packed", "/labels");
  EXPECT_EQ(packed.labels, labels);
  expect_close(packed.values, normalised(20, 1, 1 / 255.0, [](size_t i) { return static_cast<double>(i * 7 % 256); }),
               1e-6);
  const Read colours = read("images/colours", "small_labels");
  EXPECT_EQ(colours.labels, labels);
  expect_close(colours.values, normalised(6, 3, 1 / 255.0, [](size_t i) { return static_cast<double>(i * 11 % 256); }),
               1e-6);
  const auto feature = [](size_t i) { return static_cast<double>(i) * 0.1 - 3; };
  const auto expected = normalised(3, 3, 1, feature);
  expect_close(read("features/double", "labels").values, expected, 1e-6);
  expect_close(read("features/single", "labels").values, expected, 1e-6);
  expect_close(read("features/half", "labels").values, expected, 2e-3);
}

TEST_F(ForeignTest, LargeNumbersKeepTheirDifferences) {
  constexpr int64_t kTimes = 200;
  std::vector<int64_t> times;
  for (int64_t i = 0; i < kTimes; ++i) times.insert(times.end(), {1700000000000 + 7 * i, i % 5});
  Hdf5File file = Hdf5File::create(path_);
  file.write_all("x", StoredType::kInt64, {kTimes, 2}, times.data());
  file.write_all("y", StoredType::kInt32, {kTimes}, std::vector<int32_t>(kTimes).data());
  file.close();
  for (int again = 0; again < 2; ++again) {  // the hashes are made, then read
    const Read rows = read("x", "y");
    for (size_t i = 0; i < kTimes; ++i)  // numpy: (x - x.mean()) / x.std()
      EXPECT_NEAR(rows.values[i][0], (static_cast<double>(i) - 99.5) / std::sqrt((kTimes * kTimes - 1) / 12.0), 1e-6);
  }
}

TEST_F(ForeignTest, ChannelsThatComeFirstAreTheSameImages) {
  // numpy: first = last.transpose(0, 3, 1, 2)
  std::vector<uint8_t> last, first;
  for (int i = 0; i < 2 * 5 * 4 * 3; ++i) last.push_back(static_cast<uint8_t>(i * 11));
  for (size_t n = 0; n < 2; ++n)
    for (size_t c = 0; c < 3; ++c)
      for (size_t p = 0; p < 20; ++p) first.push_back(last[(n * 20 + p) * 3 + c]);
  const auto put = [&](const std::vector<uint8_t>& bytes, const Shape& shape) {
    std::filesystem::remove(hashes_path(path_, "x", "y"));
    Hdf5File file = Hdf5File::create(path_);
    file.write_all("x", StoredType::kUInt8, shape, bytes.data());
    file.write_all("y", StoredType::kInt32, {2}, std::vector<int32_t>{0, 1}.data());
    file.close();
  };
  const auto npy = [&](const std::string& name, const std::string& type, const std::string& shape,
                       const std::string& bytes) {
    std::string head = "{'descr': '" + type + "', 'fortran_order': False, 'shape': (" + shape + "), }\n";
    const auto size = static_cast<char>(head.size());
    write_file(folder_ / name, std::string("\x93NUMPY\1\0", 8) + size + '\0' + head + bytes);
    return folder_ / name;
  };
  const std::string labels = npy("y.npy", "<i4", "2,", std::string("\0\0\0\0\1\0\0\0", 8)), out = folder_ / "out.h5";
  const auto import = [&](const std::vector<uint8_t>& bytes, const std::string& shape, ImageLayout layout) {
    import_npy(npy("x.npy", "|u1", shape, {bytes.begin(), bytes.end()}), labels, out, {.force = true}, layout);
    return inspect_dataset(out);
  };
  put(last, {2, 5, 4, 3});
  const Read wanted = read("x", "y");
  EXPECT_EQ(wanted.values[0].size(), 60u);
  put(first, {2, 3, 5, 4});
  refused(ExitCode::kBadData, {"dataset 'x'", "[2, 3, 5, 4]", "data.hdf5.layout: nchw"}, "x", "y");
  const auto given = open_foreign_file(path_, "x", "y", 1 << 20, "", ImageLayout::kChannelsFirst);
  EXPECT_EQ(given->header.identity, wanted.identity);
  EXPECT_EQ(import(last, "2, 5, 4, 3", ImageLayout::kByShape).identity, wanted.identity);
  EXPECT_EQ(import(first, "2, 3, 5, 4", ImageLayout::kChannelsFirst).identity, wanted.identity);
  EXPECT_EQ(inspect_dataset(out).image_shape, (Shape{5, 4, 3}));
  expect_error(ExitCode::kBadData, {"x.npy: has shape [2, 3, 5, 4]", "--layout nchw or --layout nhwc"},
               [&] { import(first, "2, 3, 5, 4", ImageLayout::kByShape); });
  expect_error(ExitCode::kConfig, {"data.hdf5.layout is set", "leave it out"}, [&] {
    put(first, {2, 15, 4});
    open_foreign_file(path_, "x", "y", 1 << 20, "", ImageLayout::kChannelsLast);
  });
  // Told by the shape: 1 or 3 channels, and a width that is no number of channels.
  put(first, {2, 3, 4, 5});
  EXPECT_EQ(read("x", "y").values[0].size(), 60u);
  const auto told = open_foreign_file(path_, "x", "y", 1 << 20);
  EXPECT_EQ(told->header.images, (Shape{2, 4, 5, 3}));
  EXPECT_EQ(import(first, "2, 3, 4, 5", ImageLayout::kByShape).identity, told->header.identity);
  for (const Shape& shape : {Shape{2, 3, 5, 3}, Shape{2, 1, 5, 1}, Shape{2, 5, 4, 2}, Shape{2, 4, 5, 5}})
    expect_error(ExitCode::kBadData, {"place: has shape", "give ADVICE"},
                 [&] { layout_of(shape, ImageLayout::kByShape, "place", "ADVICE"); });
  expect_error(ExitCode::kUsage, {"x.npy", "leave --layout out"},
               [&] { import(first, "2, 12, 5", ImageLayout::kChannelsFirst); });
}

TEST_F(ForeignTest, ItIsTheDatasetThatAnImportMakes) {
  std::string pixels, labels;
  for (size_t i = 0; i < kSamples * 20; ++i) pixels += static_cast<char>(i * 7 % 256);
  for (size_t i = 0; i < kSamples; ++i) labels += static_cast<char>(i % 4);
  write_file(folder_ / "i.idx", idx({kSamples, 5, 4}, pixels));
  write_file(folder_ / "l.idx", idx({kSamples}, labels));
  import_idx(folder_ / "i.idx", folder_ / "l.idx", folder_ / "ours.h5");
  EXPECT_EQ(read("images/packed", "labels").identity, inspect_dataset(folder_ / "ours.h5").identity);
}

TEST_F(ForeignTest, HashesAreKeptAndAChangeIsNoticed) {
  const std::string hashes = hashes_path(path_, "/images/colours", "labels");
  EXPECT_EQ(hashes, path_ + ".images-colours.labels.hashes");
  const Read first = read("images/colours", "labels");
  ASSERT_TRUE(std::filesystem::exists(hashes));
  const std::string kept = content(hashes);
  const Read again = read("/images/colours", "/labels");
  EXPECT_EQ(again.identity, first.identity);
  EXPECT_EQ(again.values, first.values);
  EXPECT_EQ(content(hashes), kept);
  std::string pixels;
  for (int i = 0; i < 240; ++i) pixels += static_cast<char>(i * 11 % 256);
  flip_byte_of(path_, pixels.data(), pixels.size(), 100);
  expect_error(ExitCode::kBadData, {path_, "'images/colours', rows [0, 40)", "hash differs", "remove " + hashes},
               [&] { read("images/colours", "labels"); });
  std::filesystem::remove(hashes);
  EXPECT_NE(read("images/colours", "labels").identity, first.identity);
}

TEST_F(ForeignTest, NamesThatAreWrittenAlikeHaveHashesOfTheirOwn) {
  std::filesystem::remove(path_);
  Hdf5File file = Hdf5File::create(path_);
  int value = 0;
  const std::vector<std::string> names = {"train/x", "train-x", "y", "a.b", "a", "b.y"};
  for (const std::string& name : names) {
    const bool labels = name.ends_with("y");
    std::vector<uint8_t> bytes(2 * 5 * 4);
    for (uint8_t& b : bytes) b = static_cast<uint8_t>(value++);
    if (labels) file.write_all(name, StoredType::kInt32, {2}, std::vector<int32_t>{0, 1}.data());
    else file.write_all(name, StoredType::kUInt8, {2, 5, 4}, bytes.data());
  }
  file.close();
  const std::vector<std::pair<std::string, std::string>> all = {
      {"train/x", "y"}, {"train-x", "y"}, {"a.b", "y"}, {"a", "b.y"}};
  std::set<std::string> paths, identities;
  for (size_t i = 0; i < 2 * all.size(); ++i) {  // twice
    const auto& [x, y] = all[i % all.size()];
    identities.insert(to_hex(read(x, y).identity));
    paths.insert(hashes_path(path_, x, y));
    EXPECT_EQ(paths.count(path_ + ".train-x.y.hashes"), 1u);
  }
  EXPECT_EQ(identities.size(), 4u);
  EXPECT_EQ(paths.size(), 4u);
}

// Files of earlier versions, whose names said no more.
TEST_F(ForeignTest, HashesUnderAnEarlierNameStayValid) {
  std::filesystem::remove(path_);
  Hdf5File file = Hdf5File::create(path_);
  const std::vector<uint8_t> bytes(2 * 5 * 4, 7);
  file.write_all("train-x", StoredType::kUInt8, {2, 5, 4}, bytes.data());
  file.write_all("y", StoredType::kInt32, {2}, std::vector<int32_t>{0, 1}.data());
  file.close();
  const Read first = read("train-x", "y");
  const std::string now = hashes_path(path_, "train-x", "y"), before = path_ + ".train-x.y.hashes";
  ASSERT_NE(now, before);
  std::filesystem::rename(now, before);
  const std::string kept = content(before);
  EXPECT_EQ(read("train-x", "y").identity, first.identity);
  EXPECT_EQ(hashes_path(path_, "train-x", "y"), before);
  EXPECT_FALSE(std::filesystem::exists(now));
  EXPECT_EQ(content(before), kept);
}

TEST_F(ForeignTest, HashesThatDoNotFitAreRefused) {
  const std::string hashes = hashes_path(path_, "images/colours", "labels");
  read("images/packed", "labels");
  std::filesystem::copy_file(hashes_path(path_, "images/packed", "labels"), hashes);
  refused(ExitCode::kBadData, {hashes, "does not hold the hashes of", "remove"}, "images/colours", "labels");
  std::filesystem::remove(hashes);
  read("images/colours", "labels");
  std::string bytes = content(hashes);
  bytes[5000] = static_cast<char>(bytes[5000] ^ 1);
  write_file(hashes, bytes);
  refused(ExitCode::kBadData, {hashes}, "images/colours", "labels");
}

TEST_F(ForeignTest, WithoutAPlaceForHashesItIsReadAllTheSame) {
  std::filesystem::create_directory(hashes_path(path_, "images/colours", "labels"));
  const Read plain = read("images/colours", "labels");
  EXPECT_EQ(read("images/colours", "labels").identity, plain.identity);
  // In a run's folder, where there is one.
  const std::string run = folder_ / "runs/a", kept = hashes_path(path_, "images/colours", "labels", run);
  const auto open = [&] { return open_foreign_file(path_, "images/colours", "labels", 1 << 20, run); };
  EXPECT_EQ(open()->header.identity, plain.identity);
  ASSERT_TRUE(std::filesystem::is_regular_file(kept)) << kept;
  EXPECT_EQ(kept.find('/', run.size() + 1), kept.npos);
  std::string pixels;
  for (int i = 0; i < 240; ++i) pixels += static_cast<char>(i * 11 % 256);
  flip_byte_of(path_, pixels.data(), pixels.size(), 100);
  expect_error(ExitCode::kBadData, {"hash differs", "remove " + kept}, open);
}

TEST_F(ForeignTest, WhatIsNoDatasetOfSamplesIsRefused) {
  refused(ExitCode::kConfig, {"data.hdf5.samples and data.hdf5.labels must both be set"}, "images/packed", "");
  refused(ExitCode::kConfig, {path_, "holds no dataset 'nope/x'"}, "/nope/x", "labels");
  refused(ExitCode::kBadData, {"'labels' holds int64 of shape [40]", "images are uint8"}, "labels", "labels");
  refused(ExitCode::kBadData, {"'images/packed' holds uint8", "labels are integers"}, "features/single",
          "images/packed");
  refused(ExitCode::kBadData, {"'negative': label 0 is -1"}, "images/packed", "negative");
  const auto make = [&](const std::vector<float>& x, const std::vector<int32_t>& y, StoredType type) {
    Hdf5File file = Hdf5File::create(path_);
    file.write_all("x", StoredType::kFloat32, {static_cast<int64_t>(x.size()) / 2, 2}, x.data());
    file.write_all("y", type, {static_cast<int64_t>(y.size())}, y.data());
    file.close();
  };
  make({1, 2, 3, std::numeric_limits<float>::quiet_NaN()}, {0, 1}, StoredType::kInt32);
  refused(ExitCode::kBadData, {"'x': feature 1 of row 1 is nan"}, "x", "y");
  make({1, 2, 3, 4}, {0, 1, 2}, StoredType::kInt32);
  refused(ExitCode::kBadData, {"'y' holds int32 of shape [3]", "one for each of 2 samples"}, "x", "y");
  make({1, 2, 3, 4}, {0, 1}, StoredType::kFloat32);
  refused(ExitCode::kBadData, {"'y' holds", "labels are integers"}, "x", "y");
  EXPECT_EQ(folder_.files(), 1) << "hashes of what was refused";
}

}  // namespace
}  // namespace lockstep::foreign_test
