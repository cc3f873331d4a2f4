// Images: pixels of one size, or PNG and JPEG files of sizes of their own.
#include <algorithm>

#include "core/base/error.h"
#include "data/images/codecs/image_codec.h"
#include "data/samples/channel_sums.h"
#include "data/samples/dataset_file.h"
#include "data/samples/image_dataset.h"
#include "data/samples/kinds/labelled.h"
#include "data/samples/schema.h"
#include "data/samples/show.h"

namespace lockstep {
namespace {

constexpr const char* kEncoded = "encoded_images";

class ImageCopy final : public LabelledCopy {
 public:
  explicit ImageCopy(NewDataset d) : LabelledCopy(std::move(d), StoredType::kUInt8), sums_(header().images.back()) {}

 protected:
  void measure(const uint8_t* bytes, int64_t rows) override {
    sums_.add(bytes, rows * header().images[1] * header().images[2]);
  }
  void measure_encoded(const DatasetFile& file, IndexRange samples) override {
    for (int64_t i = samples.begin; i < samples.end; ++i)
      file.visit_image(
          i, [&](const uint8_t* pixels, int64_t height, int64_t width) { sums_.add(pixels, height * width); });
  }
  void set_moments(DatasetHeader& h) const override {
    h.mean.clear(), h.stddev.clear();
    sums_.moments(h.mean, h.stddev);
  }

 private:
  ChannelSums sums_;
};

class ImageKind final : public LabelledKind {
 public:
  ImageKind()
      : LabelledKind({.name = "images",
                      .rows = "images",
                      .sample = "image",
                      .samples = "images",
                      .content = "images",
                      .value = "channel"}) {}
  bool has_pixels() const override { return true; }

  std::vector<std::string> stored_names() const override { return {words().name, kEncoded}; }
  std::string stored_name(const DatasetHeader& h) const override { return h.encoded ? kEncoded : words().name; }
  int64_t rows_per_chunk(const DatasetHeader& h) const override {
    return images_per_chunk(h.encoded ? 1 : h.images[1] * h.images[2] * h.images[3]);
  }
  std::unique_ptr<SampleWriter> writer(NewDataset dataset) const override {
    return std::make_unique<ImageCopy>(std::move(dataset));
  }
  void fit(SchemaFit& fit, DatasetFile*) const override { fit.fit_statistics(); }

  ShownSample show(const std::shared_ptr<const DatasetFile>& file, int64_t index) const override {
    const ShownImage image = show_image(*file, index);
    ShownSample out;
    out.text = str("image ", index, ", ", image.height, " x ", image.width);
    out.json = {{"height", image.height}, {"width", image.width}, {"channels", image.channels}};
    out.text += sample_target(image.target).shown(image, out.json);
    if (!file->weights.empty()) {
      out.text += str(", weight ", file->weight_of(index));
      out.json.emplace_back("weight", double{file->weight_of(index)});
    }
    out.png = image.png;
    return out;
  }

  SampleParts parts(const std::shared_ptr<const DatasetFile>& file, const DataOptions& o) const override {
    return plain_parts(file->header.images[0], o, [file, o](IndexRange part, PartUse use) {
      return std::make_shared<ImageDataset>(file, part, o.image,
                                            use.training ? Augmentation(o.augment, use.seed) : Augmentation());
    });
  }

 protected:
  void read_rows(const Hdf5File& file, const std::string& stored, DatasetHeader& h) const override {
    const std::string& path = file.path();
    const Hdf5Info info = file.info("images");
    h.encoded = stored == kEncoded;
    if (!h.encoded) {
      require(info.type == StoredType::kUInt8 && info.shape.rank() == 4 && info.shape.numel() > 0, ExitCode::kBadData,
              path, ": dataset 'images' holds ", info.type, " of shape ", info.shape,
              "; expected uint8 [count, height, width, channels]");
      h.images = info.shape;
      return;
    }
    require(info.type == StoredType::kUInt8 && info.shape.rank() == 1 && info.shape[0] > 0, ExitCode::kBadData, path,
            ": dataset 'images' holds ", info.type, " of shape ", info.shape, "; expected a list of uint8");
    const int64_t channels = file.int_attribute("", "channels");
    require(channels == 1 || channels == 3, ExitCode::kBadData, path, ": attribute 'channels' is ", channels,
            "; expected 1 or 3");
    h.images = {list_info(file, "ends").shape[0], 0, 0, channels};
    require_list(file, "ends", StoredType::kInt64, h.images[0], "images");
    h.files.hashes = read_hashes(file, "ends");
  }
  void write_rows(Hdf5File& file, const DatasetHeader& h) const override {
    if (!h.encoded) return;
    file.set_attribute("", "channels", h.images[3]);
    write_hashes(file, "ends", h.files.hashes);
  }
  std::string identity_text(const DatasetHeader& h) const override {
    return h.encoded ? str("encoded images ", h.images[0], " channels ", h.images[3]) : str("images ", h.images);
  }
  void open_ends(const std::shared_ptr<const Hdf5File>& file, DatasetFile& out) const override {
    RaggedEnds& files = out.header.files;
    if (out.header.encoded) files.ends = read_ends(file, "ends", files.hashes, out.rows->size(), "image");
  }
  uint64_t hash_of(const DatasetFile& file, int64_t sample) const override {
    return file.header.encoded ? hash64(file.encoded_file(sample)) : LabelledKind::hash_of(file, sample);
  }
  std::string shape_text(const DatasetReport& r) const override {
    const bool mixed = r.image_shape[0] == 0;
    return str("shape (height, width, channels): ",
               mixed ? str("mixed sizes, ", r.image_shape[2], " channels") : to_text(r.image_shape));
  }
};

}  // namespace

const SampleKind& image_kind() {
  static const ImageKind kind;
  return kind;
}

std::string DatasetFile::encoded_file(int64_t index) const { return bytes_in(*rows, header.files.of(index)); }

ByteImage DatasetFile::decoded(int64_t index) const {
  return decode_image(encoded_file(index), header.images[3], str(path, ": image ", index));
}

}  // namespace lockstep
