// Bounding boxes, any number for each image, which are stored, but no part of samples.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/base/error.h"
#include "data/images/class_colour.h"
#include "data/samples/dataset_file.h"
#include "data/samples/header_parts.h"
#include "data/samples/sample_target.h"
#include "data/samples/schema.h"

namespace lockstep {
namespace {

// Boxes of all images, and where each image's end.
void read_boxes(std::shared_ptr<const Hdf5File> file, DatasetFile& out) {
  DatasetHeader& h = out.header;
  const std::string path = file->path();
  auto check_boxes = [path, classes = h.classes](IndexRange rows, const uint8_t* bytes) {
    const auto* box = reinterpret_cast<const float*>(bytes);
    const auto part = [](float value) { return value >= 0 && value <= 1; };
    for (int64_t i = rows.begin; i < rows.end; ++i, box += kBoxValues)
      require(box[0] >= 0 && box[0] < static_cast<float>(classes) && box[0] == std::floor(box[0]) && part(box[1]) &&
                  part(box[2]) && part(box[3]) && part(box[4]),
              ExitCode::kBadData, path, ": box ", i, " is no class in [0, ", classes, ") and 4 numbers in [0, 1]");
  };
  const StoredRows rows(stored_rows(file, "boxes"), h.label_hashes, int64_t{1} << 62, check_boxes);
  out.boxes.resize(static_cast<size_t>(rows.size() * kBoxValues));
  rows.visit({0, rows.size()}, [&](IndexRange piece, const uint8_t* bytes) {
    std::memcpy(out.boxes.data() + piece.begin * kBoxValues, bytes,
                static_cast<size_t>(piece.size() * rows.row_bytes()));
  });
  h.target_parts.ends = read_list<int64_t>(stored_rows(std::move(file), "box_ends"), h.target_parts.hashes,
                                           [](IndexRange, const uint8_t*) {});
  const std::vector<int64_t>& ends = h.target_parts.ends;
  require(!ends.empty() && std::is_sorted(ends.begin(), ends.end()) && ends.front() >= 0 && ends.back() == rows.size(),
          ExitCode::kBadData, path, ": 'box_ends' does not ascend to the ", rows.size(), " boxes");
}

// Draws the edges of boxes, a colour for each class, on an image in colour.
void draw(std::span<const float> boxes, ByteImage& image) {
  image = in_colour(std::move(image));
  for (size_t at = 0; at < boxes.size(); at += kBoxValues) {
    const float* b = boxes.data() + at;
    const auto place = [](double part, int64_t side) {
      return std::clamp<int64_t>(static_cast<int64_t>(part * static_cast<double>(side)), 0, side - 1);
    };
    const int64_t left = place(b[1] - b[3] / 2, image.width), right = place(b[1] + b[3] / 2, image.width);
    const int64_t top = place(b[2] - b[4] / 2, image.height), bottom = place(b[2] + b[4] / 2, image.height);
    const auto colour = colour_of(static_cast<uint8_t>(1 + static_cast<int64_t>(b[0]) % 254));
    const auto dot = [&](int64_t x, int64_t y) {
      std::copy(colour.begin(), colour.end(), image.bytes.data() + (y * image.width + x) * 3);
    };
    for (int64_t x = left; x <= right; ++x) dot(x, top), dot(x, bottom);
    for (int64_t y = top; y <= bottom; ++y) dot(left, y), dot(right, y);
  }
}

class BoxCopy final : public TargetCopy {
 public:
  explicit BoxCopy(std::string path) : path_(std::move(path)) {}
  void append(const DatasetFile& file, IndexRange samples, const std::vector<int32_t>& labels) override {
    for (int64_t i = samples.begin; i < samples.end; ++i) append(file.boxes_of(i), labels);
  }
  void close(Hdf5File& file, bool, DatasetHeader& h) override {
    require(!boxes_.empty(), ExitCode::kBadData, path_, ": none of its images would have a box");
    write_boxes(file, boxes_, parts_.ends, h);
  }

 private:
  void append(std::span<const float> rows, const std::vector<int32_t>& labels) {
    for (size_t at = 0; at < rows.size(); ++at) {
      const bool is_class = at % kBoxValues == 0 && !labels.empty();
      boxes_.push_back(is_class ? static_cast<float>(labels[static_cast<size_t>(rows[at])]) : rows[at]);
    }
    parts_.add(static_cast<int64_t>(rows.size()) / kBoxValues);
  }

  std::string path_;
  std::vector<float> boxes_;
  RaggedEnds parts_;
};

class BoxTarget final : public SampleTarget {
 public:
  BoxTarget()
      : SampleTarget({.name = "boxes",
                      .dataset = "boxes",
                      .ends = "box_ends",
                      .content = "boxes",
                      .counted = "boxes",
                      .needs_pixels = true}) {}

  void read_header(const Hdf5File& file, const std::string& samples, DatasetHeader& h) const override {
    h.classes = count_attribute(file, "classes", h.images[0]);
    const Hdf5Info info = file.info("boxes");
    require(info.type == StoredType::kFloat32 && info.shape.rank() == 2 && info.shape[0] > 0 &&
                info.shape[1] == kBoxValues && !info.deflated,
            ExitCode::kBadData, file.path(), ": dataset 'boxes' holds ", info.type, " of shape ", info.shape,
            "; expected float32 [boxes, 5], not compressed");
    require_list(file, "box_ends", StoredType::kInt64, h.images[0], samples);
    h.target_parts.hashes = read_hashes(file, "box_ends");
    h.label_hashes = read_hashes(file, "boxes");
    h.class_names = read_class_names(file, h.classes);
  }
  std::string identity_text(const DatasetHeader& h) const override { return str(" classes ", h.classes, " boxes"); }

  void open(const std::shared_ptr<const Hdf5File>& file, int64_t, const std::string&, DatasetFile& out) const override {
    read_boxes(file, out);
  }
  void cut(DatasetFile& file, int64_t samples) const override {
    DatasetHeader& h = file.header;
    const int64_t rows = h.target_parts.of(IndexRange{0, samples}).end;
    cut_ends(h.target_parts, samples);
    file.boxes.resize(static_cast<size_t>(rows * kBoxValues));
    h.label_hashes = hashes_of_list(file.boxes, kBoxValues);
  }
  std::unique_ptr<TargetCopy> copy(Hdf5File&, const NewDataset& d) const override {
    return std::make_unique<BoxCopy>(d.path);
  }
  void fit(SchemaFit& fit) const override { fit.fit_classes(); }

  void inspect(const DatasetFile& file, DatasetReport& report) const override {
    for (size_t at = 0; at < file.boxes.size(); at += kBoxValues)
      ++report.per_class[static_cast<size_t>(file.boxes[at])];
    for (int64_t i = 0; i < report.count; ++i) report.with_boxes += !file.boxes_of(i).empty();
  }
  std::string text(const DatasetReport& r, const std::string& samples) const override {
    const int64_t count = std::accumulate(r.per_class.begin(), r.per_class.end(), int64_t{0});
    return str("boxes: ", count, " in ", r.with_boxes, " images\n", SampleTarget::text(r, samples));
  }
  JsonObject counts(const DatasetReport& r) const override { return {{"images_with_boxes", r.with_boxes}}; }
  void show(const DatasetFile& file, int64_t index, ByteImage& image, ShownImage& out) const override {
    const std::span<const float> boxes = file.boxes_of(index);
    out.boxes.assign(boxes.begin(), boxes.end());
    draw(boxes, image);
  }
  std::string shown(const ShownImage& image, JsonObject& line) const override {
    std::vector<JsonValue> boxes;
    for (size_t at = 0; at < image.boxes.size(); at += kBoxValues)
      boxes.emplace_back(
          json_array(std::vector<JsonValue>(image.boxes.begin() + static_cast<std::ptrdiff_t>(at),
                                            image.boxes.begin() + static_cast<std::ptrdiff_t>(at + kBoxValues))));
    line.emplace_back("boxes", json_array(boxes));
    return str(", with ", boxes.size(), boxes.size() == 1 ? " box" : " boxes");
  }
};

}  // namespace

const SampleTarget& box_target() {
  static const BoxTarget target;
  return target;
}

void write_boxes(Hdf5File& file, const std::vector<float>& boxes, const std::vector<int64_t>& ends, DatasetHeader& h) {
  ChunkWriter writer(file, "boxes", StoredType::kFloat32, {ends.back(), kBoxValues}, tokens_per_chunk());
  writer.append(boxes.data(), ends.back());
  h.label_hashes = writer.finish();
  h.target_parts.hashes = write_ends(file, "box_ends", ends);
}

std::span<const float> DatasetFile::boxes_of(int64_t image) const {
  const IndexRange range = header.target_parts.of(image);
  return {boxes.data() + range.begin * kBoxValues, static_cast<size_t>(range.size() * kBoxValues)};
}

}  // namespace lockstep
