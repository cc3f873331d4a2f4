#include <algorithm>
#include <cmath>
#include <cstring>
#include <initializer_list>
#include <limits>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/io/half.h"
#include "core/io/numpy_file.h"
#include "data/images/codecs/image_codec.h"
#include "data/import/import.h"
#include "data/import/input_stream.h"
#include "data/import/tables/table_cells.h"
#include "data/samples/channel_sums.h"
#include "data/samples/dataset_file.h"
#include "data/samples/header_parts.h"
#include "data/samples/label_index.h"
#include "data/store/partial_output.h"
#include "data/store/same_pass.h"

namespace lockstep {
namespace {

constexpr int64_t kLabelsAtOnce = 1 << 20;

// An array of numbers in an open file.
class Numbers {
 public:
  Numbers(const NumpyFile& file, const std::string& name)
      : file_(file), array_(file.array(name, NumpyFile::Forms::kAll)) {
    require(shape().rank() > 0 && shape().numel() > 0, ExitCode::kBadData, place(), ": has shape ", shape(),
            "; at least one sample is needed");
    if (array_.fortran && shape().rank() > 1) read_by_columns();
  }
  const Shape& shape() const { return array_.shape; }
  const std::string& place() const { return array_.place; }  // for messages
  const std::string& type() const { return array_.type; }

  // Elements [begin, begin + count) as they are stored.
  void read(int64_t begin, int64_t count, std::vector<uint8_t>& to) const {
    to.resize(static_cast<size_t>(count * array_.item));
    if (!in_order_.empty()) std::copy_n(in_order_.data() + begin * array_.item, to.size(), to.data());
    else file_.read(array_, {begin * array_.item, (begin + count) * array_.item}, to.data());
  }
  std::vector<double> numbers(int64_t begin, int64_t count, Hasher128* hasher = nullptr) const {
    std::vector<uint8_t> bytes;
    read(begin, count, bytes);
    if (hasher) hasher->update(bytes.data(), bytes.size());
    std::vector<double> out;
    for (int64_t i = 0; i < count; ++i) out.push_back(number(bytes.data() + i * array_.item));
    return out;
  }

 private:
  template <class T>
  static double as(const uint8_t* bytes) {
    T value;
    std::memcpy(&value, bytes, sizeof value);
    return static_cast<double>(value);
  }
  // Of an array whose first index counts fastest: all of it, in C order.
  void read_by_columns() {
    const int64_t bytes = shape().numel() * array_.item;
    require(bytes <= kMostByColumns, ExitCode::kBadData, place(), ": has ", bytes,
            " bytes in Fortran order; such an array is read whole, up to ", kMostByColumns >> 30,
            " GiB: save it by numpy.ascontiguousarray");
    std::vector<uint8_t> stored(static_cast<size_t>(bytes));
    file_.read(array_, {0, bytes}, stored.data());
    in_order_.resize(stored.size());
    const int rank = shape().rank();
    std::vector<int64_t> index(static_cast<size_t>(rank)), stride(static_cast<size_t>(rank), 1);
    for (int i = 1; i < rank; ++i) stride[static_cast<size_t>(i)] = stride[static_cast<size_t>(i - 1)] * shape()[i - 1];
    int64_t from = 0;
    for (int64_t to = 0; to < bytes; to += array_.item) {
      std::copy_n(stored.data() + from * array_.item, array_.item, in_order_.data() + to);
      for (int i = rank - 1; i >= 0; --i) {
        const auto axis = static_cast<size_t>(i);
        from += stride[axis];
        if (++index[axis] < shape()[i]) break;
        from -= stride[axis] * index[axis];
        index[axis] = 0;
      }
    }
  }
  double number(const uint8_t* b) const {
    if (type() == "b1") return *b != 0;
    const bool is_signed = type()[0] == 'i';
    if (type() == "f2") return from_fp16_bits(static_cast<uint16_t>(b[0] | b[1] << 8));
    if (type() == "f4") return as<float>(b);
    if (type() == "f8") return as<double>(b);
    if (array_.item == 1) return is_signed ? as<int8_t>(b) : as<uint8_t>(b);
    if (array_.item == 2) return is_signed ? as<int16_t>(b) : as<uint16_t>(b);
    if (array_.item == 4) return is_signed ? as<int32_t>(b) : as<uint32_t>(b);
    return is_signed ? as<int64_t>(b) : as<uint64_t>(b);
  }

  static constexpr int64_t kMostByColumns = int64_t{8} << 30;

  const NumpyFile& file_;
  NumpyArray array_;
  std::vector<uint8_t> in_order_;  // where it is not in C order
};

// [count], or [count, 1] as many programs write a column.
bool is_column(const Shape& shape) { return shape.rank() == 1 || (shape.rank() == 2 && shape[1] == 1); }

std::vector<int32_t> labels_in(const Numbers& array) {
  require(is_column(array.shape()), ExitCode::kBadData, array.place(), ": has shape ", array.shape(), " and type ",
          array.type(), "; labels are integers [count] or [count, 1]");
  std::vector<int32_t> out;
  for (int64_t at = 0, count = array.shape()[0]; at < count; at += kLabelsAtOnce)
    for (double label : array.numbers(at, std::min(kLabelsAtOnce, count - at))) {
      require(label >= 0 && label < static_cast<double>(kMostClasses), ExitCode::kBadData, array.place(), ": label ",
              out.size(), " is ", label, ", not in [0, ", kMostClasses, ")");
      out.push_back(static_cast<int32_t>(label));
    }
  return out;
}

// Of so many samples.
std::vector<float> weights_in(const Numbers& array, int64_t samples) {
  require(is_column(array.shape()) && array.shape()[0] == samples, ExitCode::kBadData, array.place(), ": has shape ",
          array.shape(), " and type ", array.type(), "; weights are numbers [count] or [count, 1], one for each of ",
          samples, " samples");
  std::vector<float> out;
  for (double weight : array.numbers(0, samples)) {
    require(is_weight(weight), ExitCode::kBadData, array.place(), ": weight ", out.size(), " is ", weight, ", ",
            kNoWeight);
    out.push_back(static_cast<float>(weight));
  }
  return out;
}

std::vector<double> numbers_in(const Numbers& array) {
  require(is_column(array.shape()), ExitCode::kBadData, array.place(), ": has shape ", array.shape(), " and type ",
          array.type(), "; targets are floating-point numbers [count] or [count, 1]");
  std::vector<double> out = array.numbers(0, array.shape()[0]);
  for (size_t i = 0; i < out.size(); ++i)
    require(std::abs(out[i]) <= std::numeric_limits<float>::max(), ExitCode::kBadData, array.place(), ": target ", i,
            " is ", out[i], ", which is not finite in 32 bits");
  return out;
}

class ArrayImport {
 public:
  ArrayImport(const Numbers& array, const ImportOptions& options, ImageLayout layout)
      : array_(array),
        options_(options),
        layout_(layout),
        count_(array.shape()[0]),
        row_(array.shape().numel() / count_) {}

  void write(Hdf5File& file, DatasetHeader& header) {
    const Shape& shape = array_.shape();
    const bool images = shape.rank() == 3 || shape.rank() == 4;
    require(images || shape.rank() == 2, ExitCode::kBadData, array_.place(), ": has shape ", shape, " and type ",
            array_.type(), "; images are numbers [count, height, width], [count, height, width, channels] or [count, ",
            "channels, height, width], features are numbers [count, features]");
    require(shape.rank() == 4 || layout_ == ImageLayout::kByShape, ExitCode::kUsage, array_.place(), ": has shape ",
            shape, ", in which no axis holds channels: leave --layout out");
    header.kind = images ? DataKind::kImages : DataKind::kTable;
    header.images = shape;
    if (shape.rank() == 3) header.images.push_back(1);
    else if (images) layout_ = layout_of(shape, layout_, array_.place(), "--layout nchw or --layout nhwc");
    if (layout_ == ImageLayout::kChannelsFirst) header.images = with_channels_last(shape);
    images ? write_images(file, header) : write_features(file, header);
  }

 private:
  void write_images(Hdf5File& file, DatasetHeader& header) {
    require(row_ <= kMostImageBytes, ExitCode::kBadData, array_.place(), ": images of ", row_,
            " bytes are larger than 256 MiB");
    const int64_t step = images_per_chunk(row_), channels = header.images[3];
    const bool stored_as_bytes = array_.type() == "u1";
    const double scale = stored_as_bytes ? 1 : scale_to_bytes(step);
    Hasher128 second;
    ChunkWriter writer(file, "images", StoredType::kUInt8, header.images, step);
    ChannelSums sums(channels);
    std::vector<uint8_t> bytes, stored;
    const bool first = layout_ == ImageLayout::kChannelsFirst;
    for (int64_t at = 0; at < count_; at += step) {
      const int64_t now = std::min(step, count_ - at);
      if (stored_as_bytes) array_.read(at * row_, now * row_, first ? stored : bytes);
      else (first ? stored : bytes) = scaled(at * row_, now * row_, scale, second);
      if (first) bytes.resize(stored.size()), to_channels_last(stored.data(), now, header.images, bytes.data());
      sums.add(bytes.data(), now * row_ / channels);
      writer.append(bytes.data(), now);
      progress(at + now);
    }
    require_same_pass(stored_as_bytes || second.digest() == looked_at_, array_.place());
    header.hashes = writer.finish();
    sums.moments(header.mean, header.stddev);
  }

  // What the values of images are multiplied by to be bytes: 255 where they are truths, or floating-point numbers
  // within [0, 1]; else 1, and they are whole numbers from 0 to 255.
  double scale_to_bytes(int64_t step) {
    const bool floats = array_.type()[0] == 'f';
    double largest = 0;
    int64_t not_whole = -1;
    Hasher128 hasher;
    for (int64_t at = 0; at < count_; at += step) {
      const int64_t now = std::min(step, count_ - at);
      int64_t i = at * row_;
      for (double value : array_.numbers(i, now * row_, &hasher)) {
        require(value >= 0 && value <= 255, ExitCode::kBadData, array_.place(), ": image ", i / row_, " holds ", value,
                kWhatImagesHold);
        largest = std::max(largest, value);
        if (not_whole < 0 && value != std::floor(value)) not_whole = i / row_;
        ++i;
      }
    }
    looked_at_ = hasher.digest();
    const bool shares = array_.type() == "b1" || (floats && largest <= 1);
    require(shares || not_whole < 0, ExitCode::kBadData, array_.place(), ": image ", not_whole,
            " holds a fraction, and others more than 1", kWhatImagesHold);
    if (shares && not_whole >= 0)
      log_info(str(array_.place(), ": images within [0, 1] are stored as bytes, to the nearest 1/255"));
    return shares ? 255 : 1;
  }
  std::vector<uint8_t> scaled(int64_t begin, int64_t count, double scale, Hasher128& hasher) const {
    std::vector<uint8_t> out;
    for (double value : array_.numbers(begin, count, &hasher))
      out.push_back(static_cast<uint8_t>(std::lround(std::clamp(value * scale, 0.0, 255.0))));
    return out;
  }

  void write_features(Hdf5File& file, DatasetHeader& header) {
    require(row_ <= kMostFeatures, ExitCode::kBadData, array_.place(), ": has ", row_, " features; at most ",
            kMostFeatures, " are possible");
    const int64_t step = images_per_chunk(4 * row_);
    const auto columns = static_cast<size_t>(row_);
    std::vector<FeatureMoments> moments(columns);
    Hasher128 first, second;
    for (int64_t at = 0; at < count_; at += step) {
      const int64_t now = std::min(step, count_ - at);
      size_t i = 0;
      for (double value : array_.numbers(at * row_, now * row_, &first)) {
        require(std::abs(value) <= std::numeric_limits<float>::max(), ExitCode::kBadData, array_.place(), ": feature ",
                i % columns, " of row ", at + static_cast<int64_t>(i / columns), " is ", value,
                ", which is not finite in 32 bits");
        moments[i++ % columns].add(value);
      }
      progress((at + now) / 2);
    }
    for (FeatureMoments& m : moments) {
      m.settle();
      const size_t feature = header.mean.size();
      header.mean.push_back(m.mean);
      header.stddev.push_back(m.scale());
      header.offset.push_back(options_.without_targets ? given_offset(feature) : m.offset(m.mean, m.scale()));
      if (m.beyond_doubles())
        warn_of_lost_bits(array_.place(), str("feature ", header.mean.size() - 1), m.largest, m.scale());
    }
    ChunkWriter writer(file, "features", StoredType::kFloat32, header.images, step);
    std::vector<float> values;
    for (int64_t at = 0; at < count_; at += step) {
      const int64_t now = std::min(step, count_ - at);
      values.clear();
      for (double value : array_.numbers(at * row_, now * row_, &second))
        values.push_back(static_cast<float>(value - header.offset[values.size() % columns]));
      writer.append(values.data(), now);
      progress((count_ + at + now) / 2);
    }
    require_same_pass(first.digest() == second.digest(), array_.place());
    header.hashes = writer.finish();
    if (std::all_of(header.offset.begin(), header.offset.end(), [](double o) { return o == 0; })) header.offset.clear();
  }

  // So that it does not depend on the other rows.
  double given_offset(size_t feature) const {
    const DataSchema& of = options_.like->schema;
    return feature < of.mean.size() ? of.mean[feature] : 0.0;
  }
  void progress(int64_t rows) const {
    if (options_.progress) options_.progress(rows, count_);
  }

  static constexpr const char* kWhatImagesHold =
      "; images are whole numbers from 0 to 255, or floating-point numbers within [0, 1]: undo their normalisation, "
      "which a run does by itself, or import them as features, x.reshape(len(x), -1)";

  const Numbers& array_;
  Hash128 looked_at_;  // of what scale_to_bytes() read
  const ImportOptions& options_;
  ImageLayout layout_;
  int64_t count_, row_;
};

// `weights`: null where all weigh 1.
void import_arrays(const Numbers& samples, const Numbers& labels, const Numbers* weights, const std::string& output,
                   const ImportOptions& options, ImageLayout layout) {
  PartialOutput pending(output, options.force);
  const bool regression = labels.type()[0] == 'f';
  std::vector<int32_t> values = regression ? std::vector<int32_t>() : labels_in(labels);
  const std::vector<double> numbers = regression ? numbers_in(labels) : std::vector<double>();
  require(samples.shape()[0] == labels.shape()[0], ExitCode::kBadData, samples.place(), ": holds ", samples.shape()[0],
          " samples, but ", labels.place(), " holds ", labels.shape()[0], " labels");
  const std::vector<float> weighed = weights ? weights_in(*weights, samples.shape()[0]) : std::vector<float>();
  Hdf5File file = Hdf5File::create(pending.dataset());
  DatasetHeader header;
  if (!regression) header.classes = 1 + *std::max_element(values.begin(), values.end());
  ArrayImport(samples, options, layout).write(file, header);
  const LikeData* like = options.like.get();
  if (regression) header.target = TargetKind::kNumbers;
  if (!regression && !like) warn_of_empty_classes(labels.place(), seen_classes(values, header.classes));
  if (like) fit_to(header, values, *like, samples.place());
  if (regression) write_numbers(file, numbers, header, like ? &like->schema : nullptr);
  else write_labels(file, values, header);
  write_weights(file, weighed, header);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

void import_array_alone(const Numbers& samples, const std::string& output, const ImportOptions& options,
                        ImageLayout layout) {
  check(options.like != nullptr, "samples without targets are like other data");
  PartialOutput pending(output, options.force);
  Hdf5File file = Hdf5File::create(pending.dataset());
  DatasetHeader header;
  header.classes = 1;
  ArrayImport(samples, options, layout).write(file, header);
  std::vector<int32_t> labels(static_cast<size_t>(samples.shape()[0]), 0);
  fit_to(header, labels, *options.like, samples.place());
  write_labels(file, labels, header);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

// `given`, or the first of `usual` that is there.
std::string name_in(const NumpyFile& file, const std::string& path, const std::string& given,
                    std::initializer_list<std::string> usual, std::string_view option) {
  std::string there;
  for (const std::string& name : file.names()) there += str(there.empty() ? "" : ", ", name);
  const auto has = [&](const std::string& name) {
    return std::find(file.names().begin(), file.names().end(), name) != file.names().end();
  };
  if (!given.empty()) {
    require(has(given), ExitCode::kBadData, path, ": holds no array ", given, "; it holds ", there);
    return given;
  }
  for (const std::string& name : usual)
    if (has(name)) return name;
  throw Error(ExitCode::kBadData, str(path, ": holds none of the arrays ", *usual.begin(), " and ", *(usual.end() - 1),
                                      "; name one by ", option, ": it holds ", there));
}

}  // namespace

void import_npy(const std::string& samples, const std::string& labels, const std::string& output,
                const ImportOptions& options, ImageLayout layout, const std::string& weights) {
  const auto open = [](const std::string& path) {
    NumpyFile file(path);
    require(file.names() == std::vector<std::string>{""}, ExitCode::kBadData, path,
            ": is an archive (.npz); give it alone, or two .npy files");
    return file;
  };
  const NumpyFile x = open(samples);
  if (options.without_targets) return import_array_alone({x, ""}, output, options, layout);
  const NumpyFile y = open(labels);
  if (weights.empty()) return import_arrays({x, ""}, {y, ""}, nullptr, output, options, layout);
  const NumpyFile w = open(weights);
  const Numbers weighed(w, "");
  import_arrays({x, ""}, {y, ""}, &weighed, output, options, layout);
}

void import_npz(const std::string& archive, const std::string& samples, const std::string& labels,
                const std::string& output, const ImportOptions& options, ImageLayout layout,
                const std::string& weights) {
  const NumpyFile file(archive);
  const Numbers y(file, name_in(file, archive, labels, {"y", "y_train"}, "--labels"));
  const Numbers x(file, name_in(file, archive, samples, {"x", "x_train"}, "--samples"));
  if (weights.empty()) return import_arrays(x, y, nullptr, output, options, layout);
  const Numbers weighed(file, name_in(file, archive, weights, {}, "--weight"));
  import_arrays(x, y, &weighed, output, options, layout);
}

}  // namespace lockstep
