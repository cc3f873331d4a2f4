#include <algorithm>
#include <filesystem>
#include <functional>
#include <iterator>
#include <span>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/plain_file.h"
#include "core/io/json.h"
#include "data/images/codecs/image_codec.h"
#include "data/import/box_files.h"
#include "data/import/image_sources.h"
#include "data/import/import.h"
#include "data/import/import_threads.h"
#include "data/import/in_order.h"
#include "data/import/input_stream.h"
#include "data/samples/channel_sums.h"
#include "data/samples/dataset_file.h"
#include "data/store/partial_output.h"
#include "data/store/same_pass.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

// Calls body(i) for each i in [0, count) on several threads; rethrows the error of the smallest i.
void for_each_image(int threads, size_t count, const std::function<void(size_t)>& body) {
  size_t next = 0;
  in_order<size_t>(
      threads,
      [&](size_t& i) {
        i = next;
        return next < count ? static_cast<int64_t>(++next > 0) : 0;
      },
      [&](size_t& i, int) { body(i); }, [](size_t&) {});
}

class FolderImport {
 public:
  FolderImport(std::string folder, const ImageOptions& how, std::vector<ImageSource> images,
               const ImportOptions& options)
      : folder_(std::move(folder)), how_(how), images_(std::move(images)), options_(options) {
    for_each_image(import_threads(options_), images_.size(), [&](size_t i) {
      const std::string bytes = content(path(i));
      images_[i].bytes = static_cast<int64_t>(bytes.size());
      images_[i].hash = hash64(bytes);
      images_[i].info = image_info(bytes, path(i));
      const auto [height, width] = images_[i].announced;
      require(height == 0 || (images_[i].info.height == height && images_[i].info.width == width), ExitCode::kBadData,
              path(i), ": has ", images_[i].info.height, " x ", images_[i].info.width, " pixels, but ", how_.boxes,
              " says ", height, " x ", width);
      if (!has_masks()) return;
      require(fs::exists(mask_path(i)), ExitCode::kBadData, mask_path(i), ": is not there; it would be the mask of ",
              images_[i].name);
      images_[i].mask_bytes = InputFile(mask_path(i)).size;
    });
    const ImageInfo& first = images_.front().info;
    for (const ImageSource& s : images_) {
      channels_ = std::max(channels_, s.info.channels);
      same_size_ = same_size_ && s.info.height == first.height && s.info.width == first.width;
      file_bytes_ += s.bytes;
      mask_bytes_ += s.mask_bytes;
    }
  }
  bool same_size() const { return same_size_; }

  // Of all that the dataset is a function of.
  std::string made_of() const {
    Hasher128 files;
    const auto add = [&](const std::string& text) { files.update(text.data(), text.size()); };
    for (size_t i = 0; i < images_.size(); ++i) {
      add(described_input(path(i)) + images_[i].label + "\n");
      if (has_masks()) add(described_input(mask_path(i)));
    }
    std::string out =
        str("images of ", folder_, ", encoded ", how_.keep_encoded, ", masks ", how_.masks, ", ignored ", how_.ignored,
            ", classes ", how_.classes, "\n", images_.size(), " files, ", files.digest(), "\n");
    for (const std::string& table : {how_.labels, how_.boxes})
      if (!table.empty()) out += described_input(table);
    return out;
  }

  void write(PartialOutput& output, DatasetHeader& header) {
    const int64_t count = static_cast<int64_t>(images_.size());
    const ImageInfo& first = images_.front().info;
    header.kind = DataKind::kImages;
    header.images = header.encoded ? Shape{count, 0, 0, channels_} : Shape{count, first.height, first.width, channels_};
    Spool& spool = output.spool("images");
    Spool& masks = output.spool("masks");
    ChannelSums sums(channels_);
    int largest = -1;
    size_t next = output.found() ? restore(output, header.encoded, sums, largest) : 0;
    SaveTimer saves(options_.save_every);
    in_order<Loaded>(
        import_threads(options_),
        [&](Loaded& l) {
          l.index = next;
          return next < images_.size() ? std::max<int64_t>(1, images_[next++].info.bytes()) : 0;
        },
        [&](Loaded& l, int) { load(l, header.encoded); },
        [&](Loaded& l) {
          header.encoded ? spool.append(l.file.data(), l.file.size()) : spool.append(l.pixels.data(), l.pixels.size());
          header.encoded ? masks.append(l.mask_file.data(), l.mask_file.size())
                         : masks.append(l.mask.data(), l.mask.size());
          sums.add(l.sums);
          largest = std::max(largest, l.largest);
          if (options_.progress) options_.progress(static_cast<int64_t>(l.index) + 1, count);
          if (saves.is_due()) output.save(state(l.index + 1, sums, largest)), saves.saved();
        });
    if (saves.any()) output.save(state(images_.size(), sums, largest));
    Hdf5File file = Hdf5File::create(output.dataset());
    const auto copy = [&](const char* name, const Shape& shape, int64_t chunk_rows, Spool& from) {
      return copy_rows(file, name, StoredType::kUInt8, shape, chunk_rows, from, options_.writing);
    };
    header.hashes = copy("images", header.encoded ? Shape{file_bytes_} : header.images,
                         images_per_chunk(header.encoded ? 1 : first.height * first.width * channels_), spool);
    sums.moments(header.mean, header.stddev);
    if (header.encoded) header.files.hashes = write_ends(file, "ends", ends_of(&ImageSource::bytes));
    if (header.target == TargetKind::kBoxes) {
      write_all_boxes(file, header);
    } else if (!has_masks()) {
      std::vector<int32_t> labels;
      for (const ImageSource& s : images_) labels.push_back(s.class_index);
      if (options_.like) fit_to(header, labels, *options_.like, folder_);
      write_labels(file, labels, header);
    } else {
      require(largest >= 0, ExitCode::kBadData, how_.masks, ": all pixels of all masks are ", how_.ignored,
              ", which --ignore leaves out");
      header.target = TargetKind::kMasks;
      header.ignored = how_.ignored;
      header.classes = how_.classes > 0 ? how_.classes : largest + 1;
      header.label_hashes = copy("masks", header.encoded ? Shape{mask_bytes_} : Shape{count, first.height, first.width},
                                 mask_rows_per_chunk(header), masks);
      if (header.encoded) header.target_parts.hashes = write_ends(file, "mask_ends", ends_of(&ImageSource::mask_bytes));
    }
    std::vector<int32_t> none;
    if (options_.like && header.target != TargetKind::kLabels) fit_to(header, none, *options_.like, folder_);
    write_dataset_header(file, header);
    file.close();
  }

 private:
  struct Loaded {
    size_t index = 0;
    std::string file;             // encoded
    std::vector<uint8_t> pixels;  // otherwise
    ChannelSums sums{0};
    std::string mask_file;
    std::vector<uint8_t> mask;
    int largest = -1;  // class in the mask
  };

  void write_all_boxes(Hdf5File& file, DatasetHeader& header) const {
    std::vector<float> boxes;
    std::vector<int64_t> ends;
    for (const ImageSource& s : images_) {
      boxes.insert(boxes.end(), s.boxes.begin(), s.boxes.end());
      ends.push_back(static_cast<int64_t>(boxes.size()) / kBoxValues);
    }
    write_boxes(file, boxes, ends, header);
  }

  bool has_masks() const { return !how_.masks.empty(); }
  std::string path(size_t i) const { return folder_ + "/" + images_[i].name; }
  std::string mask_path(size_t i) const { return how_.masks + "/" + mask_name(images_[i].name); }
  static std::string content(const std::string& path) { return InputFile(path).text(kMostImageBytes); }

  std::vector<int64_t> ends_of(int64_t ImageSource::*bytes) const {
    std::vector<int64_t> out;
    for (const ImageSource& s : images_) out.push_back((out.empty() ? 0 : out.back()) + s.*bytes);
    return out;
  }

  // How far an import is, for its journal; restore() returns how many images are done.
  static JsonObject state(size_t done, const ChannelSums& sums, int largest) {
    std::vector<JsonValue> list;
    for (const auto* values : {&sums.sum, &sums.square})
      for (uint64_t value : *values) list.emplace_back(static_cast<int64_t>(value));
    return {{"images", static_cast<int64_t>(done)},
            {"pixels", sums.pixels},
            {"sums", json_array(list)},
            {"largest", int64_t{largest}}};
  }
  size_t restore(PartialOutput& output, bool encoded, ChannelSums& sums, int& largest) const {
    const JsonObject& state = *output.found();
    const auto done = static_cast<size_t>(output.found_integer(state, "images", 0, std::ssize(images_)));
    int64_t bytes = 0, mask_bytes = 0, pixels = 0;
    for (const ImageSource& s : std::span(images_).first(done)) {
      const int64_t area = s.info.height * s.info.width;
      pixels += area;
      bytes += encoded ? s.bytes : area * channels_;
      mask_bytes += !has_masks() ? 0 : encoded ? s.mask_bytes : area;
    }
    if (output.spool("images").size() != bytes || output.spool("masks").size() != mask_bytes)
      output.refuse_found("does not fit what was written");
    sums.pixels = output.found_integer(state, "pixels", pixels, pixels);
    largest = static_cast<int>(output.found_integer(state, "largest", -1, kMostMaskClasses));
    const auto list = parse_json_array(text_of(state, "sums"));
    const size_t channels = sums.sum.size();
    if (!list || list->size() != 2 * channels) output.refuse_found("has no sums of the pixels");
    for (size_t i = 0; i < list->size(); ++i) {
      const JsonObject one{{"sums", (*list)[i]}};
      (i < channels ? sums.sum[i] : sums.square[i - channels]) =
          static_cast<uint64_t>(output.found_integer(one, "sums", 0, pixels * 255 * (i < channels ? 1 : 255)));
    }
    return done;
  }

  void load(Loaded& out, bool encoded) const {
    const size_t i = out.index;
    out.file = content(path(i));
    require_same_pass(hash64(out.file) == images_[i].hash, path(i));
    ByteImage image = decode_image(out.file, channels_, path(i));
    out.sums = ChannelSums(channels_);
    out.sums.add(image.bytes.data(), image.height * image.width);
    if (!encoded) out.file.clear(), out.pixels = std::move(image.bytes);
    if (has_masks()) load_mask(i, out);
  }

  void load_mask(size_t i, Loaded& out) const {
    const std::string path = mask_path(i);
    out.mask_file = content(path);
    ByteImage mask = decode_mask(out.mask_file, path);
    require_same_pass(static_cast<int64_t>(out.mask_file.size()) == images_[i].mask_bytes, path);
    const ImageInfo& info = images_[i].info;
    require(mask.height == info.height && mask.width == info.width, ExitCode::kBadData, path, ": has ", mask.height,
            " x ", mask.width, " pixels, but ", images_[i].name, " has ", info.height, " x ", info.width);
    const int limit = static_cast<int>(how_.classes > 0 ? how_.classes : kMostMaskClasses);
    for (size_t at = 0; at < mask.bytes.size(); ++at) {
      const int value = mask.bytes[at];
      if (value == how_.ignored) continue;
      const auto width = static_cast<size_t>(mask.width);
      require(value < limit, ExitCode::kBadData, path, ": is ", value, " at row ", at / width, ", column ", at % width,
              ", not a class in [0, ", limit, "); --ignore ", value, " leaves such pixels out of loss and metric");
      out.largest = std::max(out.largest, value);
    }
    out.mask = std::move(mask.bytes);
  }

  std::string folder_;
  const ImageOptions& how_;
  std::vector<ImageSource> images_;
  const ImportOptions& options_;
  int64_t channels_ = 1, file_bytes_ = 0, mask_bytes_ = 0;
  bool same_size_ = true;
};

}  // namespace

void import_images(const std::string& folder, const std::string& output, const ImageOptions& images,
                   const ImportOptions& options) {
  require(fs::is_directory(folder), ExitCode::kMissingInput, folder, ": is no folder");
  PendingFile::check_place(output, options.force);
  DatasetHeader header;
  FolderImport import(folder, images, image_sources(folder, images, header), options);
  header.encoded = images.keep_encoded || !import.same_size();
  PartialOutput pending(output, options.force, import.made_of());
  import.write(pending, header);
  pending.commit();
}

}  // namespace lockstep
