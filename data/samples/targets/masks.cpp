// A mask for each image: a class for every pixel.
#include <algorithm>
#include <set>

#include "core/base/error.h"
#include "data/images/class_colour.h"
#include "data/images/codecs/image_codec.h"
#include "data/samples/dataset_file.h"
#include "data/samples/header_parts.h"
#include "data/samples/sample_target.h"
#include "data/samples/schema.h"

namespace lockstep {
namespace {

constexpr uint8_t kNoClass = 255;  // whose colour is light

// Throws where one of a mask's pixels is neither a class nor ignored.
void check_mask(const DatasetHeader& h, const std::string& path, int64_t image, const uint8_t* pixels, int64_t width,
                int64_t count) {
  const auto* bad = std::find_if(pixels, pixels + count, [&](uint8_t v) { return v >= h.classes && v != h.ignored; });
  const int64_t at = bad - pixels;
  require(at == count, ExitCode::kBadData, path, ": mask ", image, " is ", at < count ? *bad : 0, " at row ",
          at / width, ", column ", at % width, ", not in [0, ", h.classes, "); import the images again");
}

// The image, in colour, with its mask to the right.
ByteImage beside(const ByteImage& image, const std::vector<uint8_t>& mask) {
  const ByteImage colour = in_colour(image);
  ByteImage out{image.height, 2 * image.width, 3, {}};
  for (int64_t y = 0; y < image.height; ++y) {
    const uint8_t* row = colour.bytes.data() + y * image.width * 3;
    out.bytes.insert(out.bytes.end(), row, row + image.width * 3);
    for (int64_t x = 0; x < image.width; ++x)
      for (uint8_t value : colour_of(mask[static_cast<size_t>(y * image.width + x)])) out.bytes.push_back(value);
  }
  return out;
}

class MaskCopy final : public TargetCopy {
 public:
  MaskCopy(Hdf5File& file, const NewDataset& d)
      : masks_(file, "masks", StoredType::kUInt8, shape(d), mask_rows_per_chunk(d.header)) {}
  void append(const DatasetFile& file, IndexRange samples, const std::vector<int32_t>&) override {
    const RaggedEnds& parts = file.header.target_parts;
    for (int64_t i = samples.begin; file.header.encoded && i < samples.end; ++i) parts_.add(parts.of(i).size());
    file.masks->visit(parts.of(samples),
                      [&](IndexRange piece, const uint8_t* bytes) { masks_.append(bytes, piece.size()); });
  }
  void close(Hdf5File& file, bool, DatasetHeader& h) override {
    h.label_hashes = masks_.finish();
    if (h.encoded) h.target_parts.hashes = write_ends(file, "mask_ends", parts_.ends);
  }

 private:
  static Shape shape(const NewDataset& d) {
    const DatasetHeader& h = d.header;
    return h.encoded ? Shape{d.target_rows} : Shape{d.target_rows, h.images[1], h.images[2]};
  }
  ChunkWriter masks_;
  RaggedEnds parts_;  // of encoded ones
};

class MaskTarget final : public SampleTarget {
 public:
  MaskTarget()
      : SampleTarget({.name = "masks",
                      .dataset = "masks",
                      .ends = "mask_ends",
                      .content = "masks",
                      .counted = "pixels",
                      .needs_pixels = true}) {}

  void read_header(const Hdf5File& file, const std::string& samples, DatasetHeader& h) const override {
    h.classes = count_attribute(file, "classes", h.images[0]);
    const Hdf5Info info = file.info("masks");
    const Shape wanted = {h.images[0], h.images[1], h.images[2]};
    const bool fits = h.encoded ? info.shape.rank() == 1 : info.shape == wanted;
    require(info.type == StoredType::kUInt8 && fits, ExitCode::kBadData, file.path(), ": dataset 'masks' holds ",
            info.type, " of shape ", info.shape, "; expected uint8 ", h.encoded ? "[bytes]" : to_text(wanted));
    h.ignored = file.int_attribute("masks", "ignore");
    require(h.ignored >= -1 && h.ignored <= 255 && h.classes <= kMostMaskClasses, ExitCode::kBadData, file.path(),
            ": masks of ", h.classes, " classes, of which the value ", h.ignored, " is ignored; expected at most ",
            kMostMaskClasses, " classes, and a value in [-1, 255]");
    if (h.encoded) {
      require_list(file, "mask_ends", StoredType::kInt64, h.images[0], samples);
      h.target_parts.hashes = read_hashes(file, "mask_ends");
    }
    h.label_hashes = read_hashes(file, "masks");
    h.class_names = read_class_names(file, h.classes);
  }
  void write_attributes(Hdf5File& file, const DatasetHeader& h) const override {
    file.set_attribute("masks", "ignore", h.ignored);
  }
  std::string identity_text(const DatasetHeader& h) const override {
    return str(" classes ", h.classes, " masks ignore ", h.ignored);
  }

  // Of a pixel's bytes, its mask is one.
  int64_t memory_share(const DatasetHeader& h, int64_t memory_bytes) const override {
    return memory_bytes / (1 + h.images[3]);
  }
  void open(const std::shared_ptr<const Hdf5File>& file, int64_t memory_bytes, const std::string&,
            DatasetFile& out) const override {
    DatasetHeader& h = out.header;
    StoredRows::Check check_masks = [](IndexRange, const uint8_t*) {};
    if (!h.encoded)
      check_masks = [&h, path = out.path](IndexRange rows, const uint8_t* bytes) {
        const int64_t pixels = h.images[1] * h.images[2];
        for (int64_t i = rows.begin; i < rows.end; ++i, bytes += pixels)
          check_mask(h, path, i, bytes, h.images[2], pixels);
      };
    out.masks = std::make_unique<StoredRows>(stored_rows(file, "masks"), h.label_hashes, memory_bytes, check_masks);
    if (h.encoded) h.target_parts.ends = read_ends(file, "mask_ends", h.target_parts.hashes, out.masks->size(), "mask");
  }
  void cut(DatasetFile& file, int64_t samples) const override {
    DatasetHeader& h = file.header;
    const int64_t rows = h.target_parts.of(IndexRange{0, samples}).end;
    if (h.encoded) cut_ends(h.target_parts, samples);
    h.label_hashes = hashes_of_first(*file.masks, h.label_hashes, rows, mask_rows_per_chunk(h));
  }
  std::unique_ptr<TargetCopy> copy(Hdf5File& file, const NewDataset& d) const override {
    return std::make_unique<MaskCopy>(file, d);
  }
  std::string difference(const DatasetHeader& other, const DatasetHeader& first) const override {
    if (other.ignored != first.ignored)
      return str("pixels that are no targets are ", other.ignored, " there and ", first.ignored, " here");
    return other.class_names == first.class_names ? "" : "the classes of masks have other names";
  }
  void fit(SchemaFit& fit) const override { fit.fit_classes(); }

  void add_to(DataSpec& spec, const TensorSpec& input) const override {
    spec.tensors.push_back({std::string(kLabels), DType::kInt32, {input.shape[0], input.shape[1]}});
  }

  void inspect(const DatasetFile& file, DatasetReport& report) const override {
    for (int64_t i = 0; i < file.header.images[0]; ++i)
      file.visit_image(i, [&](const uint8_t*, int64_t height, int64_t width) {
        for (uint8_t value : file.mask(i, height, width))
          ++(value == file.header.ignored ? report.ignored : report.per_class[value]);
      });
  }
  std::string text(const DatasetReport& r, const std::string& samples) const override {
    return SampleTarget::text(r, samples) + (r.ignored > 0 ? str(", ignored: ", r.ignored) : "");
  }
  JsonObject counts(const DatasetReport& r) const override { return {{"ignored_pixels", r.ignored}}; }
  void show(const DatasetFile& file, int64_t index, ByteImage& image, ShownImage& out) const override {
    const int64_t ignored = file.header.ignored;
    std::vector<uint8_t> mask = file.mask(index, image.height, image.width);
    const std::set<uint8_t> values(mask.begin(), mask.end());
    for (uint8_t value : values)
      if (value != ignored) out.in_mask.push_back(value);
    if (ignored >= 0) std::replace(mask.begin(), mask.end(), static_cast<uint8_t>(ignored), kNoClass);
    image = beside(image, mask);
  }
  std::string shown(const ShownImage& image, JsonObject& line) const override {
    line.emplace_back("in_mask", json_array(std::vector<JsonValue>(image.in_mask.begin(), image.in_mask.end())));
    std::string text = ", with classes";
    for (int64_t c : image.in_mask) text += str(" ", c);
    return text;
  }
};

}  // namespace

const SampleTarget& mask_target() {
  static const MaskTarget target;
  return target;
}

int64_t mask_rows_per_chunk(const DatasetHeader& h) {
  return images_per_chunk(h.encoded ? 1 : h.images[1] * h.images[2]);
}

std::vector<uint8_t> DatasetFile::mask(int64_t index, int64_t height, int64_t width) const {
  if (!header.encoded) {
    std::vector<uint8_t> out;
    masks->visit({index, index + 1},
                 [&](IndexRange, const uint8_t* pixels) { out.assign(pixels, pixels + height * width); });
    return out;
  }
  ByteImage out = decode_mask(bytes_in(*masks, header.target_parts.of(index)), str(path, ": mask ", index));
  require(out.height == height && out.width == width, ExitCode::kBadData, path, ": mask ", index, " has ", out.height,
          " x ", out.width, " pixels, its image ", height, " x ", width, "; import the images again");
  check_mask(header, path, index, out.bytes.data(), width, height * width);
  return std::move(out.bytes);
}

}  // namespace lockstep
