#include <algorithm>
#include <atomic>
#include <exception>
#include <filesystem>
#include <mutex>
#include <set>
#include <thread>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "core/device/thread_pool.h"
#include "core/io/pending_file.h"
#include "data/channel_sums.h"
#include "data/codecs/image_codec.h"
#include "data/csv.h"
#include "data/dataset_file.h"
#include "data/import.h"
#include "data/label_index.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kBatchBytes = 64 << 20;  // of pixels that are decoded before they are written

struct Source {
  std::string name;  // within the folder
  std::string label;
  int32_t class_index = 0;
  ImageInfo info;
  int64_t bytes = 0, mask_bytes = 0;  // of the files
};

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

bool is_image_name(const fs::path& path) {
  std::string end = path.extension();
  std::transform(end.begin(), end.end(), end.begin(), [](unsigned char c) { return std::tolower(c); });
  return end == ".png" || end == ".jpg" || end == ".jpeg";
}

// Images by the subfolder that they lie in, which is their label if they need one.
std::vector<Source> images_in_folder(const std::string& folder, bool labelled) {
  std::vector<Source> out;
  std::string other;
  int64_t others = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory(error)) continue;
    const std::string name = it->path().lexically_relative(folder);
    if (!is_image_name(it->path())) {
      if (others++ == 0 || name < other) other = name;
      continue;
    }
    const size_t slash = name.find('/');
    require(slash != name.npos || !labelled, ExitCode::kBadData, it->path().string(), ": lies in no subfolder of ",
            folder, ", whose name would be its label; or give --labels or --masks");
    out.emplace_back().name = name;
    if (labelled) out.back().label = name.substr(0, slash);
  }
  require(!error, ExitCode::kMissingInput, folder, ": cannot be read: ", error.message());
  if (others > 0)
    log_warning(
        cat(folder, ": ", others, " files are neither .png nor .jpg by name and were left out, such as ", other));
  return out;
}

// Images by a table with the columns `file` (within the folder) and `label`.
std::vector<Source> labelled_by_table(const std::string& table) {
  CsvReader rows(table, csv_separator(table));
  std::vector<std::string> cells;
  require(rows.next(cells), ExitCode::kBadData, table, ": is empty");
  const auto column = [&](const char* name) {
    const auto found = std::find(cells.begin(), cells.end(), name);
    require(found != cells.end(), ExitCode::kBadData, table, ":1: has no column '", name,
            "'; the first row names the columns, and 'file' and 'label' are needed");
    return static_cast<size_t>(found - cells.begin());
  };
  const size_t file = column("file"), label = column("label");
  std::vector<Source> out;
  while (rows.next(cells)) {
    const std::string& name = cells[file];
    const auto place = [&] { return cat(table, ":", rows.line(), ": "); };
    require(!name.empty() && !cells[label].empty(), ExitCode::kBadData, place(), "file or label is missing");
    const fs::path path(name);
    require(path.is_relative() && std::find(path.begin(), path.end(), "..") == path.end(), ExitCode::kBadData, place(),
            "file '", name, "' does not lie within the folder");
    out.emplace_back().name = path.lexically_normal();
    out.back().label = cells[label];
  }
  return out;
}

// An order that mixes the labels, so that any part of the data has all of them, and depends on the names alone.
void mix_order(std::vector<Source>& images, const std::string& where) {
  std::vector<std::pair<uint64_t, size_t>> keys;
  for (size_t i = 0; i < images.size(); ++i) keys.emplace_back(hash64(images[i].name), i);
  std::sort(keys.begin(), keys.end(), [&](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : images[a.second].name < images[b.second].name;
  });
  std::vector<Source> out;
  for (const auto& [key, i] : keys) {
    require(out.empty() || out.back().name != images[i].name, ExitCode::kBadData, where, ": names ", images[i].name,
            " twice");
    out.push_back(std::move(images[i]));
  }
  images = std::move(out);
}

// Of an image's name, that of its mask.
std::string mask_name(const std::string& image) { return fs::path(image).replace_extension(".png"); }

void warn_of_other_masks(const std::string& folder, const std::vector<Source>& images) {
  std::set<std::string> names;
  for (const Source& s : images) names.insert(mask_name(s.name));
  std::string other;
  int64_t others = 0;
  std::error_code error;
  for (fs::recursive_directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().lexically_relative(folder);
    if (it->is_directory(error) || names.contains(name)) continue;
    if (others++ == 0 || name < other) other = name;
  }
  if (others > 0) log_warning(cat(folder, ": ", others, " files are masks of no image, such as ", other));
}

class FolderImport {
 public:
  FolderImport(std::string folder, const ImageOptions& how, std::vector<Source> images, const ImportOptions& options)
      : folder_(std::move(folder)), how_(how), images_(std::move(images)), options_(options) {
    on_all_cores(images_.size(), [&](size_t i) {
      const std::string bytes = content(path(i));
      images_[i].bytes = static_cast<int64_t>(bytes.size());
      images_[i].info = image_info(bytes, path(i));
      if (!has_masks()) return;
      require(fs::exists(mask_path(i)), ExitCode::kBadData, mask_path(i), ": is not there; it would be the mask of ",
              images_[i].name);
      images_[i].mask_bytes = InputFile(mask_path(i)).size;
    });
    const ImageInfo& first = images_.front().info;
    for (const Source& s : images_) {
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
      masks = std::make_unique<ChunkWriter>(file, "masks", StoredType::kUInt8, shape,
                                            images_per_chunk(header.encoded ? 1 : first.height * first.width));
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
    if (!masks) return write_labels(file, labels, header);
    require(largest >= 0, ExitCode::kBadData, how_.masks, ": all pixels of all masks are ", how_.ignored,
            ", which --ignore leaves out");
    header.target = TargetKind::kMasks;
    header.ignored = how_.ignored;
    header.classes = how_.classes > 0 ? how_.classes : largest + 1;
    header.label_hashes = masks->finish();
    if (header.encoded) header.mask_end_hashes = write_ends(file, "mask_ends", mask_ends);
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
  std::vector<Source> images_;
  const ImportOptions& options_;
  int64_t channels_ = 1, file_bytes_ = 0, mask_bytes_ = 0;
  bool same_size_ = true;
};

}  // namespace

void import_images(const std::string& folder, const std::string& output, const ImageOptions& images,
                   const ImportOptions& options) {
  require(fs::is_directory(folder), ExitCode::kMissingInput, folder, ": is no folder");
  PendingFile pending(output, options.force);
  const bool masks = !images.masks.empty();
  require(!masks || fs::is_directory(images.masks), ExitCode::kMissingInput, images.masks, ": is no folder");
  std::vector<Source> sources =
      images.labels.empty() ? images_in_folder(folder, !masks) : labelled_by_table(images.labels);
  const std::string& where = images.labels.empty() ? folder : images.labels;
  require(!sources.empty(), ExitCode::kBadData, where, ": holds no PNG or JPEG image");
  DatasetHeader header;
  if (masks) {
    warn_of_other_masks(images.masks, sources);
  } else {
    std::set<std::string> labels;
    for (const Source& s : sources) labels.insert(s.label);
    const auto index = index_of_labels(labels, where, header.class_names);
    for (Source& s : sources) s.class_index = index.at(s.label);
    header.classes = static_cast<int64_t>(header.class_names.size());
  }
  mix_order(sources, where);
  FolderImport import(folder, images, std::move(sources), options);
  header.encoded = images.keep_encoded || !import.same_size();
  Hdf5File file = Hdf5File::create(pending.temporary());
  import.write(file, header);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

}  // namespace lockstep
