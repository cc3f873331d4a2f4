#include "core/io/tensorboard.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/host.h"
#include "core/io/files.h"
#include "core/io/protobuf.h"

namespace lockstep {

using namespace protobuf;

namespace {

// Field numbers of tensorflow/core/util/event.proto and framework/summary.proto.
enum : uint64_t { kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7 };
enum : uint64_t { kSummaryValue = 1, kSessionStatus = 1, kSessionStart = 1 };
enum : uint64_t {
  kValueTag = 1,
  kValueSimple = 2,
  kValueImage = 4,
  kValueHistogram = 5,
  kValueTensor = 8,
  kValueMetadata = 9
};
enum : uint64_t { kImageHeight = 1, kImageWidth = 2, kImageColours = 3, kImageBytes = 4, kImageIsRgb = 3 };
enum : uint64_t { kLeast = 1, kLargest = 2, kCount = 3, kSum = 4, kSquares = 5, kBucketLimits = 6, kBucketCounts = 7 };
enum : uint64_t {
  kMetadataPlugin = 1,
  kPluginName = 1,
  kTensorType = 1,
  kTensorShape = 2,
  kTensorText = 8,
  kTypeText = 7
};
enum : uint64_t { kShapeExtent = 2, kExtentSize = 1 };

// One value of a summary: what `field` of it holds.
void put_value(std::string& summary, const std::string& tag, uint64_t field, std::string_view content,
               std::string_view metadata = {}) {
  std::string value;
  put_bytes(value, kValueTag, tag);
  put_bytes(value, field, content);
  if (!metadata.empty()) put_bytes(value, kValueMetadata, metadata);
  put_bytes(summary, kSummaryValue, value);
}

double wall_time() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string event_begin(int64_t step) {
  std::string event;
  put_double(event, kWallTime, wall_time());
  if (step != 0) put_integer(event, kStep, static_cast<uint64_t>(step));
  return event;
}

std::string host_in_file_name() {
  std::string name = host_name();
  std::replace(name.begin(), name.end(), '/', '_');
  return name;
}

// Finds a name that no other writer uses: the counter at its end increases until the file is new.
std::string new_file(const std::string& dir) {
  std::error_code error;
  std::filesystem::create_directories(dir, error);
  if (error) fail_write(dir, error.value());
  std::string time = std::to_string(static_cast<int64_t>(wall_time()));
  std::string padded = str(std::string(time.size() < 10 ? 10 - time.size() : 0, '0'), time);
  std::string stem =
      str(dir, "/events.out.tfevents.", padded, ".", host_in_file_name(), ".", static_cast<int64_t>(::getpid()), ".");
  for (int n = 0;; ++n) {
    std::string path = str(stem, n);
    int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    if (fd >= 0) {
      ::close(fd);
      return path;
    }
    if (errno != EEXIST) fail_write(path, errno);
  }
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  uint32_t crc = crc32c(bytes.data(), bytes.size());
  return ((crc >> 15) | (crc << 17)) + 0xA282EAD8u;
}

std::string event_record(std::string_view bytes) {
  std::string length, out;
  put_little_endian(length, static_cast<uint64_t>(bytes.size()));
  out = length;
  put_little_endian(out, masked_crc32c(length));
  out += bytes;
  put_little_endian(out, masked_crc32c(bytes));
  return out;
}

EventWriter::EventWriter(const std::string& dir, int64_t first_step)
    : file_(std::make_unique<AppendFile>(new_file(dir))) {
  std::string version = event_begin(0);
  put_bytes(version, kFileVersion, "brain.Event:2");
  file_->append(event_record(version));
  if (first_step <= 0) return;
  std::string session;
  put_integer(session, kSessionStatus, kSessionStart);
  std::string start = event_begin(first_step);
  put_bytes(start, kSessionLog, session);
  file_->append(event_record(start));
}

void EventWriter::scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values) {
  std::string summary, value;
  for (const auto& [tag, v] : values) {
    value.clear();
    put_bytes(value, kValueTag, tag);
    put_float(value, kValueSimple, static_cast<float>(v));
    put_bytes(summary, kSummaryValue, value);
  }
  append(step, summary);
}

void EventWriter::histograms(int64_t step, const std::vector<Distribution>& values) {
  std::string summary;
  for (const Distribution& d : values) {
    if (d.counts.empty()) continue;
    std::string limits, counts, histogram;
    for (const auto& [bucket, count] : d.counts.counts()) {
      put_little_endian(limits, Histogram::edges(bucket).second);
      put_little_endian(counts, static_cast<double>(count));
    }
    const int first = d.counts.counts().begin()->first, last = d.counts.counts().rbegin()->first;
    put_double(histogram, kLeast, std::max(Histogram::edges(first).first, -d.largest));
    put_double(histogram, kLargest, std::min(Histogram::edges(last).second, d.largest));
    put_double(histogram, kCount, static_cast<double>(d.counts.count()));
    put_double(histogram, kSum, d.sum);
    put_double(histogram, kSquares, d.squares);
    put_bytes(histogram, kBucketLimits, limits);
    put_bytes(histogram, kBucketCounts, counts);
    put_value(summary, d.tag, kValueHistogram, histogram);
  }
  append(step, summary);
}

void EventWriter::text(int64_t step, const std::string& tag, std::string_view markdown) {
  std::string plugin, metadata, extent, shape, tensor, summary;
  put_bytes(plugin, kPluginName, "text");
  put_bytes(metadata, kMetadataPlugin, plugin);
  put_integer(extent, kExtentSize, 1);
  put_bytes(shape, kShapeExtent, extent);
  put_integer(tensor, kTensorType, kTypeText);
  put_bytes(tensor, kTensorShape, shape);
  put_bytes(tensor, kTensorText, markdown);
  put_value(summary, tag, kValueTensor, tensor, metadata);
  append(step, summary);
}

void EventWriter::picture(int64_t step, const std::string& tag, std::string_view png, int64_t height, int64_t width) {
  std::string image, summary;
  put_integer(image, kImageHeight, static_cast<uint64_t>(height));
  put_integer(image, kImageWidth, static_cast<uint64_t>(width));
  put_integer(image, kImageColours, kImageIsRgb);
  put_bytes(image, kImageBytes, png);
  put_value(summary, tag, kValueImage, image);
  append(step, summary);
}

void EventWriter::append(int64_t step, const std::string& summary) {
  std::string event = event_begin(step);
  put_bytes(event, kSummary, summary);
  file_->append(event_record(event));
}

}  // namespace lockstep
