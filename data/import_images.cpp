#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <mutex>
#include <thread>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/device/thread_pool.h"
#include "core/io/pending_file.h"
#include "data/box_files.h"
#include "data/channel_sums.h"
#include "data/codecs/image_codec.h"
#include "data/dataset_file.h"
#include "data/image_sources.h"
#include "data/import.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBatchBytes = 64 << 20;  // of pixels that are decoded before they are written

// Calls body(i) for each i in [0, count) on all cores; rethrows the error of the smallest i.
void on_all_cores(size_t count, const std::function<void(size_t)>& body) {
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  size_t failed = count;
  std::exception_ptr failure;
  const auto work = [&] {
    for (size_t i; (i = next++) < count;) try {
        body(i);
      } catch (...) {
        std::lock_guard lock(mutex);
        if (i < failed) failed = i, failure = std::current_exception();
      }
  };
  std::vector<std::jthread> helpers;
  for (size_t i = 1; i < std::min(count, static_cast<size_t>(available_cores())); ++i) helpers.emplace_back(work);
  work();
  helpers.clear();
  if (failure) std::rethrow_exception(failure);
}

class FolderImport {
 public:
  FolderImport(std::string folder, const ImageOptions& how, std::vector<ImageSource> images,
               const ImportOptions& options)
      : folder_(std::move(folder)), how_(how), images_(std::move(images)), options_(options) {
    on_all_cores(images_.size(), [&](size_t i) {
      const std::string bytes = content(path(i));
      images_[i].bytes = static_cast<int64_t>(bytes.size());
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

  void write(Hdf5File& file, DatasetHeader& header) {
    const int64_t count = static_cast<int64_t>(images_.size());
    const ImageInfo& first = images_.front().info;
    header.kind = DataKind::kImages;
    header.images = header.encoded ? Shape{count, 0, 0, channels_} : Shape{count, first.height, first.width, channels_};
    const Shape stored = header.encoded ? Shape{file_bytes_} : header.images;
    ChunkWriter writer(file, "images", StoredType::kUInt8, stored,
                       images_per_chunk(header.encoded ? 1 : first.height * first.width * channels_));
    std::unique_ptr<ChunkWriter> masks;
    if (has_masks()) {
      const Shape shape = header.encoded ? Shape{mask_bytes_} : Shape{count, first.height, first.width};
      masks = std::make_unique<ChunkWriter>(file, "masks", StoredType::kUInt8, shape, mask_rows_per_chunk(header));
    }
    ChannelSums sums(channels_);
    std::vector<int32_t> labels;
    std::vector<int64_t> ends, mask_ends;
    int largest = -1;
    for (size_t begin = 0, end; begin < images_.size(); begin = end) {
      end = batch_end(begin);
      std::vector<Loaded> batch(end - begin);
      on_all_cores(batch.size(), [&](size_t i) { batch[i] = load(begin + i, header.encoded); });
      for (size_t i = begin; i < end; ++i) {
        const Loaded& l = batch[i - begin];
        header.encoded ? writer.append(l.file.data(), images_[i].bytes) : writer.append(l.pixels.data(), 1);
        sums.add(l.sums);
        ends.push_back((ends.empty() ? 0 : ends.back()) + images_[i].bytes);
        labels.push_back(images_[i].class_index);
        if (!masks) continue;
        header.encoded ? masks->append(l.mask_file.data(), images_[i].mask_bytes) : masks->append(l.mask.data(), 1);
        mask_ends.push_back((mask_ends.empty() ? 0 : mask_ends.back()) + images_[i].mask_bytes);
        largest = std::max(largest, l.largest);
      }
      if (options_.progress) options_.progress(static_cast<int64_t>(end), count);
    }
    header.hashes = writer.finish();
    sums.moments(header.mean, header.stddev);
    if (header.encoded) header.end_hashes = write_ends(file, "ends", ends);
    if (header.target == TargetKind::kBoxes) return write_all_boxes(file, header);
    if (!masks) return write_labels(file, labels, header);
    require(largest >= 0, ExitCode::kBadData, how_.masks, ": all pixels of all masks are ", how_.ignored,
            ", which --ignore leaves out");
    header.target = TargetKind::kMasks;
    header.ignored = how_.ignored;
    header.classes = how_.classes > 0 ? how_.classes : largest + 1;
    header.label_hashes = masks->finish();
    if (header.encoded) header.target_end_hashes = write_ends(file, "mask_ends", mask_ends);
  }

 private:
  struct Loaded {
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

  size_t batch_end(size_t begin) const {
    int64_t bytes = 0;
    size_t end = begin;
    while (end < images_.size() && (end == begin || bytes < kBatchBytes)) bytes += images_[end++].info.bytes();
    return end;
  }

  Loaded load(size_t i, bool encoded) const {
    Loaded out;
    out.file = content(path(i));
    ByteImage image = decode_image(out.file, channels_, path(i));
    const ImageInfo& info = images_[i].info;
    require(same(out.file, images_[i].bytes) && image.height == info.height && image.width == info.width,
            ExitCode::kBadData, path(i), ": changed during the import");
    out.sums = ChannelSums(channels_);
    out.sums.add(image.bytes.data(), image.height * image.width);
    if (!encoded) out.file.clear(), out.pixels = std::move(image.bytes);
    if (has_masks()) load_mask(i, out);
    return out;
  }

  static bool same(const std::string& file, int64_t bytes) { return static_cast<int64_t>(file.size()) == bytes; }

  void load_mask(size_t i, Loaded& out) const {
    const std::string path = mask_path(i);
    out.mask_file = content(path);
    ByteImage mask = decode_mask(out.mask_file, path);
    require(same(out.mask_file, images_[i].mask_bytes), ExitCode::kBadData, path, ": changed during the import");
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
  PendingFile pending(output, options.force);
  DatasetHeader header;
  FolderImport import(folder, images, image_sources(folder, images, header), options);
  header.encoded = images.keep_encoded || !import.same_size();
  Hdf5File file = Hdf5File::create(pending.temporary());
  import.write(file, header);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

}  // namespace lockstep
