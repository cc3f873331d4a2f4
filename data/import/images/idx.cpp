#include <algorithm>
#include <optional>

#include "core/base/error.h"
#include "data/import/import.h"
#include "data/import/input_stream.h"
#include "data/samples/channel_sums.h"
#include "data/samples/dataset_file.h"
#include "data/samples/label_index.h"
#include "data/store/partial_output.h"

namespace lockstep {
namespace {

// An IDX file (LeCun's MNIST format): bytes 0, 0, type, dimensions; then each extent as a big-endian uint32; then the
// values, row-major. Compressed or plain.
class IdxFile {
 public:
  explicit IdxFile(const std::string& path) : path_(path), input_(path) { read_header(); }

  const Shape& shape() const { return shape_; }
  // The next `size` bytes of the values.
  void read(uint8_t* to, int64_t size) {
    while (size > 0) {
      const auto got = static_cast<int64_t>(input_.read(to, static_cast<size_t>(std::min<int64_t>(size, 1 << 20))));
      require(got > 0, ExitCode::kBadData, path_, ": is truncated: it ends after ", read_, " of ", expected_,
              " bytes; fetch the file again");
      to += got;
      size -= got;
      read_ += got;
    }
  }
  // Checks that no data follows. This also verifies the checksum at the end of a compressed file.
  void expect_end() {
    uint8_t more;
    require(input_.read(&more, 1) == 0, ExitCode::kBadData, path_, ": holds more than the ", shape_,
            " values that its header declares");
  }

 private:
  void read_header() {
    uint8_t head[4];
    read(head, 4);
    require(head[0] == 0 && head[1] == 0, ExitCode::kBadData, path_, ": is not an IDX file: it begins with bytes ",
            int{head[0]}, ", ", int{head[1]}, " instead of 0, 0");
    require(head[2] == 8, ExitCode::kBadData, path_, ": holds values of IDX type ", int{head[2]},
            "; only unsigned bytes (8) can be imported");
    require(head[3] == 1 || head[3] == 3 || head[3] == 4, ExitCode::kBadData, path_, ": has ", int{head[3]},
            " dimensions; labels have 1, images 3 or 4");
    expected_ += 4 * int64_t{head[3]};
    double values = 1;
    for (int i = 0; i < head[3]; ++i) {
      uint8_t b[4];
      read(b, 4);
      int64_t extent = int64_t{b[0]} << 24 | int64_t{b[1]} << 16 | int64_t{b[2]} << 8 | int64_t{b[3]};
      require(extent > 0 && (i == 0 || extent <= 1 << 16), ExitCode::kBadData, path_, ": has size ", extent,
              " in dimension ", i, "; images have 1 to 65536 pixels a side, and at least one sample is needed");
      shape_.push_back(extent);
      values *= static_cast<double>(extent);
    }
    // Checked in floating point, before products of the sizes are computed as integers. 256 TiB is more than any image
    // file.
    require(values <= static_cast<double>(int64_t{1} << 48), ExitCode::kBadData, path_, ": has shape ", shape_,
            ", more values than any file holds: it is damaged or not an IDX file");
    // Checked before memory is allocated; one byte of gzip data expands to at most 1032 bytes.
    const auto size = input_.size();
    require(size == 0 || values <= 1032.0 * static_cast<double>(size), ExitCode::kBadData, path_,
            ": is truncated: it has shape ", shape_, ", more values than its ", size,
            " bytes can hold; fetch the file again");
    expected_ += shape_.numel();
  }
  std::string path_;
  InputStream input_;
  Shape shape_;
  int64_t read_ = 0, expected_ = 4;  // bytes
};

// [count, height, width, channels] of the images, which have a label each; `labels`: null for none.
Shape checked_shape(const IdxFile& images, const std::string& path, const IdxFile* labels,
                    const std::string& labels_path) {
  Shape shape = images.shape();
  require(shape.rank() >= 3, ExitCode::kBadData, path, ": has shape ", shape,
          "; images are [count, height, width] or [count, height, width, channels]");
  require(!labels || labels->shape().rank() == 1, ExitCode::kBadData, labels_path, ": has shape ",
          labels ? labels->shape() : Shape(), "; labels are [count]");
  require(!labels || shape[0] == labels->shape()[0], ExitCode::kBadData, path, ": holds ", shape[0], " images, but ",
          labels_path, " holds ", labels ? labels->shape()[0] : 0, " labels");
  const bool first = shape.rank() == 4 && (shape[1] == 1 || shape[1] == 3) && shape[3] > 4;
  require(
      !first, ExitCode::kBadData, path, ": has shape ", shape,
      ", with channels first; IDX files hold images as [count, height, width, channels]: save it so, or as an array "
      "of NumPy, which is imported either way (data import npy)");
  if (shape.rank() == 3) shape.push_back(1);
  const int64_t image_bytes = shape[1] * shape[2] * shape[3];
  require(image_bytes <= 1 << 28, ExitCode::kBadData, path, ": images of ", image_bytes,
          " bytes are larger than 256 MiB");
  return shape;
}

// All labels, which are in [0, classes); classes 0 becomes the largest label plus one.
std::vector<int32_t> idx_labels(IdxFile& labels, const std::string& path, int64_t count, int64_t& classes) {
  std::vector<uint8_t> bytes;
  std::vector<int32_t> values;
  for (int64_t done = 0; done < count;
       done += static_cast<int64_t>(bytes.size())) {  // in blocks: the header's sizes may be wrong
    bytes.resize(static_cast<size_t>(std::min<int64_t>(count - done, 1 << 20)));
    labels.read(bytes.data(), static_cast<int64_t>(bytes.size()));
    values.insert(values.end(), bytes.begin(), bytes.end());
  }
  labels.expect_end();
  if (classes == 0) classes = 1 + *std::max_element(values.begin(), values.end());
  for (int64_t i = 0; i < count; ++i)
    require(values[static_cast<size_t>(i)] < classes, ExitCode::kBadData, path, ": label ", i, " is ",
            values[static_cast<size_t>(i)], ", not in [0, ", classes, ")");
  return values;
}

}  // namespace

void import_idx(const std::string& images_path, const std::string& labels_path, const std::string& output,
                int64_t classes, const ImportOptions& options) {
  require(classes >= 0 && classes <= kMostClasses, ExitCode::kUsage, "data import idx: --classes ", classes,
          ": a number in [0, ", kMostClasses, "] is needed");
  PartialOutput pending(output, options.force);
  IdxFile images(images_path);
  std::optional<IdxFile> labels;
  if (!options.without_targets) labels.emplace(labels_path);
  const Shape shape = checked_shape(images, images_path, labels ? &*labels : nullptr, labels_path);
  const int64_t count = shape[0], pixels = shape[1] * shape[2], image_bytes = pixels * shape[3];
  std::vector<int32_t> values(static_cast<size_t>(count), 0);
  const bool counted = classes == 0;
  if (labels) values = idx_labels(*labels, labels_path, count, classes);
  if (labels && counted && !options.like)
    warn_of_empty_classes(labels_path, seen_classes(values, classes),
                          str("--classes ", classes, " says that there are so many"));

  Hdf5File file = Hdf5File::create(pending.dataset());
  DatasetHeader header;
  header.kind = DataKind::kImages;
  header.images = shape;
  header.classes = labels ? classes : 1;
  int64_t step = images_per_chunk(image_bytes);
  ChunkWriter writer(file, "images", StoredType::kUInt8, shape, step);
  ChannelSums sums(shape[3]);
  std::vector<uint8_t> bytes;
  for (int64_t done = 0; done < count; done += step) {
    int64_t now = std::min(step, count - done);
    bytes.resize(static_cast<size_t>(now * image_bytes));
    images.read(bytes.data(), now * image_bytes);
    sums.add(bytes.data(), now * pixels);
    writer.append(bytes.data(), now);
    if (options.progress) options.progress(done + now, count);
  }
  images.expect_end();
  header.hashes = writer.finish();
  sums.moments(header.mean, header.stddev);
  if (options.like) fit_to(header, values, *options.like, images_path);
  write_labels(file, values, header);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

}  // namespace lockstep
