#include "core/io/tensorboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>

#include "core/base/hash.h"
#include "tests/launch/scratch.h"

namespace lockstep::tensorboard_test {
namespace {

// A second, independent CRC-32C: bit by bit.
uint32_t slow_crc32c(const std::string& bytes) {
  uint32_t crc = 0xFFFFFFFFu;
  for (unsigned char b : bytes) {
    crc ^= b;
    for (int k = 0; k < 8; ++k) crc = (crc >> 1) ^ (crc & 1 ? 0x82F63B78u : 0);
  }
  return ~crc;
}
uint32_t masked(uint32_t crc) { return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u; }

template <class T>
T load(const std::string& bytes, size_t at) {
  T v = 0;
  for (size_t i = 0; i < sizeof(T); ++i) v |= static_cast<T>(static_cast<unsigned char>(bytes.at(at + i))) << (8 * i);
  return v;
}

// One protobuf message: numbers by field; bytes by field, in order.
struct Message {
  std::map<int, uint64_t> numbers;
  std::map<int, std::vector<std::string>> bytes;
};
Message decode(const std::string& in) {
  Message out;
  size_t at = 0;
  auto varint = [&] {
    uint64_t v = 0;
    for (int shift = 0;; shift += 7) {
      auto b = static_cast<unsigned char>(in.at(at++));
      v |= static_cast<uint64_t>(b & 0x7F) << shift;
      if (b < 0x80) return v;
    }
  };
  while (at < in.size()) {
    uint64_t tag = varint();
    int field = static_cast<int>(tag >> 3);
    switch (tag & 7) {
      case 0: out.numbers[field] = varint(); break;
      case 1: out.numbers[field] = load<uint64_t>(in, at), at += 8; break;
      case 2: {
        uint64_t n = varint();
        out.bytes[field].push_back(in.substr(at, n));
        at += n;
        break;
      }
      case 5: out.numbers[field] = load<uint32_t>(in, at), at += 4; break;
      default: ADD_FAILURE() << "wire type " << (tag & 7); return out;
    }
  }
  return out;
}

std::vector<Message> read_events(const std::string& path) {
  std::string file = read_all(path);
  std::vector<Message> out;
  for (size_t at = 0; at < file.size();) {
    auto length = load<uint64_t>(file, at);
    EXPECT_EQ(load<uint32_t>(file, at + 8), masked(slow_crc32c(file.substr(at, 8))));
    std::string data = file.substr(at + 12, length);
    EXPECT_EQ(data.size(), length);
    EXPECT_EQ(load<uint32_t>(file, at + 12 + length), masked(slow_crc32c(data)));
    out.push_back(decode(data));
    at += 16 + length;
  }
  return out;
}

float as_float(uint64_t bits) {
  auto low = static_cast<uint32_t>(bits);
  float f;
  std::memcpy(&f, &low, sizeof f);
  return f;
}

TEST(TensorBoard, ChecksumsAreCrc32cMasked) {
  EXPECT_EQ(crc32c("123456789", 9), 0xE3069283u);                    // the check value of CRC-32C
  EXPECT_EQ(crc32c(std::string(32, '\0').data(), 32), 0x8A9136AAu);  // RFC 3720, B.4
  EXPECT_EQ(crc32c(std::string(32, '\xff').data(), 32), 0x62A8AB43u);
  EXPECT_EQ(masked_crc32c("123456789"), masked(0xE3069283u));
}

TEST(TensorBoard, ScalarsDecodeToWhatWasWritten) {
  Scratch scratch;
  std::string path;
  {
    EventWriter writer(scratch.path("events"));
    path = writer.path();
    writer.scalars(1, {{"train/loss", 2.5}, {"train/lr", 3e-4}});
    writer.scalars(int64_t{1} << 40, {{"train/loss", std::nan("")}});
    writer.scalars(0, {});
  }
  std::string name = std::filesystem::path(path).filename().string();
  EXPECT_TRUE(name.starts_with("events.out.tfevents.")) << name;
  EXPECT_TRUE(name.ends_with(".0")) << name;
  auto events = read_events(path);
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[0].bytes[3].at(0), "brain.Event:2");
  double wall;
  std::memcpy(&wall, &events[0].numbers[1], sizeof wall);
  EXPECT_GT(wall, 1.6e9);
  EXPECT_EQ(events[1].numbers[2], 1u);
  auto summary = decode(events[1].bytes[5].at(0));
  ASSERT_EQ(summary.bytes[1].size(), 2u);
  auto loss = decode(summary.bytes[1][0]), lr = decode(summary.bytes[1][1]);
  EXPECT_EQ(loss.bytes[1].at(0), "train/loss");
  EXPECT_EQ(as_float(loss.numbers[2]), 2.5f);
  EXPECT_EQ(lr.bytes[1].at(0), "train/lr");
  EXPECT_EQ(as_float(lr.numbers[2]), 3e-4f);
  EXPECT_EQ(events[2].numbers[2], uint64_t{1} << 40);
  EXPECT_TRUE(std::isnan(as_float(decode(decode(events[2].bytes[5].at(0)).bytes[1].at(0)).numbers[2])));
}

double as_double(uint64_t bits) {
  double d;
  std::memcpy(&d, &bits, sizeof d);
  return d;
}

// Field numbers as in summary.proto, tensor.proto and the plugins' metadata.
TEST(TensorBoard, HistogramsTextsAndPicturesDecodeToWhatWasWritten) {
  Scratch scratch;
  EventWriter writer(scratch.path("events"));
  Histogram counts;
  const std::vector<float> values{-4, 0, 1.25f, 1.75f, 1.8f};
  counts.add(values.data(), 5);
  writer.histograms(7, {{"watch/a", counts, 0.8, 24, 4}, {"watch/empty", {}, 0, 0, 0}});
  writer.text(0, "config", "    lr: 1");
  writer.picture(9, "validation/confusion", "png bytes", 20, 30);
  auto events = read_events(writer.path());
  ASSERT_EQ(events.size(), 4u);
  EXPECT_EQ(events[1].numbers[2], 7u);
  const auto value_in = [&](size_t event) { return decode(decode(events[event].bytes[5].at(0)).bytes[1].at(0)); };
  auto value = value_in(1);
  EXPECT_EQ(value.bytes[1].at(0), "watch/a");
  auto histogram = decode(value.bytes[5].at(0));
  EXPECT_EQ(as_double(histogram.numbers[1]), -4);
  EXPECT_EQ(as_double(histogram.numbers[2]), 2) << "the upper edge of the last bucket";
  EXPECT_EQ(as_double(histogram.numbers[3]), 5);
  EXPECT_EQ(as_double(histogram.numbers[4]), 0.8);
  EXPECT_EQ(as_double(histogram.numbers[5]), 24);
  std::vector<std::pair<double, double>> buckets;
  for (size_t at = 0; at < histogram.bytes[6].at(0).size(); at += 8)
    buckets.emplace_back(as_double(load<uint64_t>(histogram.bytes[6][0], at)),
                         as_double(load<uint64_t>(histogram.bytes[7].at(0), at)));
  ASSERT_EQ(buckets.size(), 4u);
  EXPECT_EQ(buckets[0], std::pair(-4.0, 1.0)) << "the bucket is (-6, -4]";
  EXPECT_EQ(buckets[2], std::pair(1.5, 1.0));
  EXPECT_EQ(buckets[3], std::pair(2.0, 2.0));
  value = value_in(2);
  EXPECT_EQ(value.bytes[1].at(0), "config");
  EXPECT_EQ(decode(decode(value.bytes[9].at(0)).bytes[1].at(0)).bytes[1].at(0), "text");
  auto tensor = decode(value.bytes[8].at(0));
  EXPECT_EQ(tensor.numbers[1], 7u);  // DT_STRING
  EXPECT_EQ(tensor.bytes[8].at(0), "    lr: 1");
  EXPECT_EQ(decode(decode(tensor.bytes[2].at(0)).bytes[2].at(0)).numbers[1], 1u);
  value = value_in(3);
  EXPECT_EQ(value.bytes[1].at(0), "validation/confusion");
  auto image = decode(value.bytes[4].at(0));
  EXPECT_EQ(image.numbers[1], 20u);
  EXPECT_EQ(image.numbers[2], 30u);
  EXPECT_EQ(image.numbers[3], 3u);
  EXPECT_EQ(image.bytes[4].at(0), "png bytes");
}

TEST(TensorBoard, AResumedRunSaysFromWhichStepItReplaces) {
  Scratch scratch;
  EventWriter first(scratch.path()), second(scratch.path(), 11);
  EXPECT_NE(first.path(), second.path());  // within one second and process too
  auto events = read_events(second.path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[1].numbers[2], 11u);
  EXPECT_EQ(decode(events[1].bytes[7].at(0)).numbers[1], 1u);  // SessionLog.START
  EXPECT_EQ(read_events(first.path()).size(), 1u);
}

TEST(TensorBoard, APlaceThatCannotBeWrittenIsRefused) {
  Scratch scratch;
  scratch.write("file", "");
  EXPECT_EQ(error_of([&] { EventWriter writer(scratch.path("file/tb")); }).first, ExitCode::kOutputLocked);
}

}  // namespace
}  // namespace lockstep::tensorboard_test
