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
  int64_t bytes = 0;  // of the file
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

// Images by the subfolder that they lie in.
std::vector<Source> labelled_by_folder(const std::string& folder) {
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
    require(slash != name.npos, ExitCode::kBadData, it->path().string(), ": lies in no subfolder of ", folder,
            ", whose name would be its label; or give --labels");
    out.push_back({name, name.substr(0, slash), 0, {}, 0});
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
    out.push_back({path.lexically_normal(), cells[label], 0, {}, 0});
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

class FolderImport {
 public:
  FolderImport(std::string folder, std::vector<Source> images, const ImportOptions& options)
      : folder_(std::move(folder)), images_(std::move(images)), options_(options) {
    on_all_cores(images_.size(), [&](size_t i) {
      const std::string bytes = content(i);
      images_[i].bytes = static_cast<int64_t>(bytes.size());
      images_[i].info = image_info(bytes, path(i));
    });
    const ImageInfo& first = images_.front().info;
    for (const Source& s : images_) {
      channels_ = std::max(channels_, s.info.channels);
      same_size_ = same_size_ && s.info.height == first.height && s.info.width == first.width;
      file_bytes_ += s.bytes;
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
    ChannelSums sums(channels_);
    std::vector<int32_t> labels;
    std::vector<int64_t> ends;
    for (size_t begin = 0, end; begin < images_.size(); begin = end) {
      end = batch_end(begin);
      std::vector<Loaded> batch(end - begin);
      on_all_cores(batch.size(), [&](size_t i) { batch[i] = load(begin + i, header.encoded); });
      for (size_t i = begin; i < end; ++i) {
        const Loaded& l = batch[i - begin];
        header.encoded ? writer.append(l.file.data(), l.bytes()) : writer.append(l.pixels.data(), 1);
        sums.add(l.sums);
        ends.push_back((ends.empty() ? 0 : ends.back()) + l.bytes());
        labels.push_back(images_[i].class_index);
      }
      if (options_.progress) options_.progress(static_cast<int64_t>(end), count);
    }
    header.hashes = writer.finish();
    sums.moments(header.mean, header.stddev);
    header.label_hashes = write_labels(file, labels);
    if (!header.encoded) return;
    ChunkWriter end_writer(file, "ends", StoredType::kInt64, {count}, tokens_per_chunk());
    end_writer.append(ends.data(), count);
    header.end_hashes = end_writer.finish();
  }

 private:
  struct Loaded {
    std::string file;             // encoded
    std::vector<uint8_t> pixels;  // otherwise
    ChannelSums sums{0};
    int64_t bytes() const { return static_cast<int64_t>(file.size()); }
  };

  std::string path(size_t i) const { return folder_ + "/" + images_[i].name; }
  std::string content(size_t i) const { return InputFile(path(i)).text(kMostImageBytes); }

  size_t batch_end(size_t begin) const {
    int64_t bytes = 0;
    size_t end = begin;
    while (end < images_.size() && (end == begin || bytes < kBatchBytes)) bytes += images_[end++].info.bytes();
    return end;
  }

  Loaded load(size_t i, bool encoded) const {
    Loaded out;
    out.file = content(i);
    ByteImage image = decode_image(out.file, channels_, path(i));
    const ImageInfo& info = images_[i].info;
    require(out.bytes() == images_[i].bytes && image.height == info.height && image.width == info.width,
            ExitCode::kBadData, path(i), ": changed during the import");
    out.sums = ChannelSums(channels_);
    out.sums.add(image.bytes.data(), image.height * image.width);
    if (!encoded) out.file.clear(), out.pixels = std::move(image.bytes);
    return out;
  }

  std::string folder_;
  std::vector<Source> images_;
  const ImportOptions& options_;
  int64_t channels_ = 1, file_bytes_ = 0;
  bool same_size_ = true;
};

}  // namespace

void import_images(const std::string& folder, const std::string& output, const ImageOptions& images,
                   const ImportOptions& options) {
  require(fs::is_directory(folder), ExitCode::kMissingInput, folder, ": is no folder");
  PendingFile pending(output, options.force);
  std::vector<Source> sources = images.labels.empty() ? labelled_by_folder(folder) : labelled_by_table(images.labels);
  const std::string& where = images.labels.empty() ? folder : images.labels;
  require(!sources.empty(), ExitCode::kBadData, where, ": holds no PNG or JPEG image");
  DatasetHeader header;
  std::set<std::string> labels;
  for (const Source& s : sources) labels.insert(s.label);
  const auto index = index_of_labels(labels, where, header.class_names);
  for (Source& s : sources) s.class_index = index.at(s.label);
  header.classes = static_cast<int64_t>(header.class_names.size());
  mix_order(sources, where);
  FolderImport import(folder, std::move(sources), options);
  header.encoded = images.keep_encoded || !import.same_size();
  Hdf5File file = Hdf5File::create(pending.temporary());
  import.write(file, header);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

}  // namespace lockstep
