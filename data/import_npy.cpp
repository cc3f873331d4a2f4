#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/io/pending_file.h"
#include "data/channel_sums.h"
#include "data/codecs/image_codec.h"
#include "data/dataset_file.h"
#include "data/import.h"

namespace lockstep {
namespace {

constexpr int64_t kMostNpyHeader = 64 << 10, kLabelsAtOnce = 1 << 20;

// An array as numpy.save() writes it, version 1 to 3: little-endian or single bytes, rows one behind the other.
class NpyFile {
 public:
  explicit NpyFile(const std::string& path) : file_(path) {
    char head[12] = {};
    require_format(file_.size >= 12, "it is shorter than a header");
    file_.read(0, head, 12);
    require_format(std::memcmp(head, "\x93NUMPY", 6) == 0, "it does not begin with \\x93NUMPY");
    const int version = head[6];
    require_format(version >= 1 && version <= 3, cat("version ", version, " is not known"));
    const int64_t length_bytes = version == 1 ? 2 : 4;
    int64_t length = 0;
    for (int64_t i = length_bytes; i-- > 0;) length = length << 8 | static_cast<uint8_t>(head[8 + i]);
    begin_ = 8 + length_bytes + length;
    require_format(length <= kMostNpyHeader && begin_ <= file_.size, cat("its header has ", length, " bytes"));
    std::string text(static_cast<size_t>(length), '\0');
    file_.read(8 + length_bytes, text.data(), length);
    parse(text);
    // Before products of extents are computed as integers.
    double bytes = static_cast<double>(item_);
    for (int64_t extent : shape_) bytes *= static_cast<double>(extent);
    require_format(
        bytes == static_cast<double>(file_.size - begin_),
        cat("its shape is ", shape_, " of ", item_, " bytes each, but ", file_.size - begin_, " bytes follow"));
  }
  const Shape& shape() const { return shape_; }
  const std::string& path() const { return file_.path; }
  const std::string& type() const { return type_; }  // "u1", "f4", ...

  // Elements [begin, begin + count) as they are stored.
  void read(int64_t begin, int64_t count, std::vector<uint8_t>& to) const {
    to.resize(static_cast<size_t>(count * item_));
    file_.read(begin_ + begin * item_, to.data(), count * item_);
  }
  std::vector<double> numbers(int64_t begin, int64_t count) const {
    std::vector<uint8_t> bytes;
    read(begin, count, bytes);
    std::vector<double> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(number(bytes.data() + i * item_));
    return out;
  }

 private:
  void require_format(bool holds, const std::string& what) const {
    require(holds, ExitCode::kBadData, file_.path, ": is no .npy file that can be imported: ", what);
  }

  // {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }, in which NumPy keeps the order.
  void parse(std::string_view text) {
    const auto skip = [&](std::string_view word) {
      while (text.starts_with(' ')) text.remove_prefix(1);
      const bool there = text.starts_with(word);
      if (there) text.remove_prefix(word.size());
      return there;
    };
    require_format(skip("{") && skip("'descr'") && skip(":") && skip("'") && text.size() > 4,
                   "its header does not begin with a type");
    const char order = text[0];
    type_ = text.substr(1, 2);
    require_format(order == '<' || order == '|', "its values are not little-endian");
    text.remove_prefix(3);
    const bool known = type_ == "u1" || type_ == "i1" || type_ == "u2" || type_ == "i2" || type_ == "u4" ||
                       type_ == "i4" || type_ == "u8" || type_ == "i8" || type_ == "f4" || type_ == "f8";
    require_format(known && skip("'"), cat("type ", type_, " is none of integers, float32 and float64"));
    item_ = type_[1] - '0';
    require_format(skip(",") && skip("'fortran_order'") && skip(":") && skip("False"), "it is not in C order");
    require_format(skip(",") && skip("'shape'") && skip(":") && skip("("), "its header has no shape");
    while (!skip(")")) {
      while (text.starts_with(' ')) text.remove_prefix(1);
      int64_t extent = 0;
      const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), extent);
      require_format(error == std::errc() && extent > 0 && shape_.rank() < Shape::kMaxRank, "its shape is not valid");
      text.remove_prefix(static_cast<size_t>(end - text.data()));
      shape_.push_back(extent);
      require_format(skip(",") || text.starts_with(')'), "its shape is not valid");
    }
    require_format(shape_.rank() > 0, "it holds a single value");
  }

  template <class T>
  static double as(const uint8_t* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return static_cast<double>(value);
  }
  double number(const uint8_t* b) const {
    const bool is_signed = type_[0] == 'i';
    if (type_ == "f4") return as<float>(b);
    if (type_ == "f8") return as<double>(b);
    if (item_ == 1) return is_signed ? as<int8_t>(b) : as<uint8_t>(b);
    if (item_ == 2) return is_signed ? as<int16_t>(b) : as<uint16_t>(b);
    if (item_ == 4) return is_signed ? as<int32_t>(b) : as<uint32_t>(b);
    return is_signed ? as<int64_t>(b) : as<uint64_t>(b);
  }

  InputFile file_;
  Shape shape_;
  std::string type_;
  int64_t item_ = 0, begin_ = 0;  // bytes
};

std::vector<int32_t> labels_in(const NpyFile& file) {
  require(file.shape().rank() == 1, ExitCode::kBadData, file.path(), ": has shape ", file.shape(), " and type ",
          file.type(), "; labels are integers [count]");
  std::vector<int32_t> out;
  for (int64_t at = 0, count = file.shape()[0]; at < count; at += kLabelsAtOnce)
    for (double label : file.numbers(at, std::min(kLabelsAtOnce, count - at))) {
      require(label >= 0 && label < static_cast<double>(kMostClasses), ExitCode::kBadData, file.path(), ": label ",
              out.size(), " is ", label, ", not in [0, ", kMostClasses, ")");
      out.push_back(static_cast<int32_t>(label));
    }
  return out;
}

std::vector<double> numbers_in(const NpyFile& file) {
  require(file.shape().rank() == 1, ExitCode::kBadData, file.path(), ": has shape ", file.shape(), " and type ",
          file.type(), "; targets are floating-point numbers [count]");
  std::vector<double> out = file.numbers(0, file.shape()[0]);
  for (size_t i = 0; i < out.size(); ++i)
    require(std::abs(out[i]) <= std::numeric_limits<float>::max(), ExitCode::kBadData, file.path(), ": target ", i,
            " is ", out[i], ", which is not finite in 32 bits");
  return out;
}

class ArrayImport {
 public:
  ArrayImport(const NpyFile& array, const ImportOptions& options)
      : array_(array), options_(options), count_(array.shape()[0]), row_(array.shape().numel() / count_) {}

  void write(Hdf5File& file, DatasetHeader& header) {
    const Shape& shape = array_.shape();
    const bool images = array_.type() == "u1" && (shape.rank() == 3 || shape.rank() == 4);
    require(images || shape.rank() == 2, ExitCode::kBadData, array_.path(), ": has shape ", shape, " and type ",
            array_.type(), "; images are uint8 [count, height, width] or [count, height, width, channels], features ",
            "are numbers [count, features]");
    header.kind = images ? DataKind::kImages : DataKind::kTable;
    header.images = shape;
    if (shape.rank() == 3) header.images.push_back(1);
    images ? write_images(file, header) : write_features(file, header);
  }

 private:
  void write_images(Hdf5File& file, DatasetHeader& header) {
    require(row_ <= kMostImageBytes, ExitCode::kBadData, array_.path(), ": images of ", row_,
            " bytes are larger than 256 MiB");
    const int64_t step = images_per_chunk(row_), channels = header.images[3];
    ChunkWriter writer(file, "images", StoredType::kUInt8, header.images, step);
    ChannelSums sums(channels);
    std::vector<uint8_t> bytes;
    for (int64_t at = 0; at < count_; at += step) {
      const int64_t now = std::min(step, count_ - at);
      array_.read(at * row_, now * row_, bytes);
      sums.add(bytes.data(), now * row_ / channels);
      writer.append(bytes.data(), now);
      progress(at + now);
    }
    header.hashes = writer.finish();
    sums.moments(header.mean, header.stddev);
  }

  void write_features(Hdf5File& file, DatasetHeader& header) {
    require(row_ <= kMostFeatures, ExitCode::kBadData, array_.path(), ": has ", row_, " features; at most ",
            kMostFeatures, " are possible");
    const int64_t step = images_per_chunk(4 * row_);
    ChunkWriter writer(file, "features", StoredType::kFloat32, header.images, step);
    std::vector<FeatureMoments> moments(static_cast<size_t>(row_));
    std::vector<float> values;
    for (int64_t at = 0; at < count_; at += step) {
      const int64_t now = std::min(step, count_ - at);
      values.clear();
      for (double value : array_.numbers(at * row_, now * row_)) {
        const auto c = values.size() % moments.size();
        const int64_t row = at + static_cast<int64_t>(values.size() / moments.size());
        require(std::abs(value) <= std::numeric_limits<float>::max(), ExitCode::kBadData, array_.path(), ": feature ",
                c, " of row ", row, " is ", value, ", which is not finite in 32 bits");
        moments[c].add(value);
        values.push_back(static_cast<float>(value));
      }
      writer.append(values.data(), now);
      progress(at + now);
    }
    header.hashes = writer.finish();
    for (const FeatureMoments& m : moments) {
      header.mean.push_back(m.mean);
      header.stddev.push_back(m.scale());
    }
  }

  void progress(int64_t rows) const {
    if (options_.progress) options_.progress(rows, count_);
  }

  const NpyFile& array_;
  const ImportOptions& options_;
  int64_t count_, row_;
};

}  // namespace

void import_npy(const std::string& samples, const std::string& labels, const std::string& output,
                const ImportOptions& options) {
  PendingFile pending(output, options.force);
  const NpyFile array(samples), label_array(labels);
  const bool regression = label_array.type()[0] == 'f';
  const std::vector<int32_t> values = regression ? std::vector<int32_t>() : labels_in(label_array);
  const std::vector<double> numbers = regression ? numbers_in(label_array) : std::vector<double>();
  require(array.shape()[0] == label_array.shape()[0], ExitCode::kBadData, samples, ": holds ", array.shape()[0],
          " samples, but ", labels, " holds ", label_array.shape()[0], " labels");
  Hdf5File file = Hdf5File::create(pending.temporary());
  DatasetHeader header;
  if (!regression) header.classes = 1 + *std::max_element(values.begin(), values.end());
  ArrayImport(array, options).write(file, header);
  if (regression) write_numbers(file, numbers, header);
  else write_labels(file, values, header);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

}  // namespace lockstep
