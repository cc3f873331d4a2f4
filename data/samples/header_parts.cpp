#include "data/samples/header_parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/images/codecs/image_codec.h"
#include "data/samples/channel_sums.h"

namespace lockstep {

std::string rows_name(DataKind kind) {
  return kind == DataKind::kTokens ? "tokens" : kind == DataKind::kTable ? "features" : "images";
}

std::string target_name(TargetKind kind) {
  switch (kind) {
    case TargetKind::kMasks: return "masks";
    case TargetKind::kNumbers: return "targets";
    case TargetKind::kBoxes: return "boxes";
    case TargetKind::kLabels: break;
  }
  return "labels";
}

Range part_of(const std::vector<int64_t>& ends, int64_t index) {
  const auto i = static_cast<size_t>(index);
  return {i == 0 ? 0 : ends[i - 1], ends[i]};
}

// Lists that are read at once must not be compressed: a few compressed bytes could expand to any amount of memory.
Hdf5Info list_info(const Hdf5File& file, const std::string& name) {
  const Hdf5Info info = file.info(name);
  require(info.shape.rank() == 1, ExitCode::kBadData, file.path(), ": dataset '", name, "' has shape ", info.shape,
          "; expected a list");
  require(!info.deflated, ExitCode::kBadData, file.path(), ": dataset '", name,
          "' is compressed (deflate), which is allowed only for tokens and images");
  return info;
}

// The hash of each chunk of dataset `of`.
std::vector<uint64_t> read_hashes(const Hdf5File& file, const std::string& of) {
  const std::string name = of + "_hash";
  const Hdf5Info info = list_info(file, name), hashed = file.info(of);
  const int64_t chunks =
      hashed.chunk_rows > 0 && hashed.shape.rank() > 0 ? ceil_div(hashed.shape[0], hashed.chunk_rows) : 0;
  require(info.shape[0] == chunks, ExitCode::kBadData, file.path(), ": dataset '", of, "' has ", chunks,
          " chunks, but there are ", info.shape[0], " chunk hashes");
  std::vector<uint64_t> words(static_cast<size_t>(info.shape[0]));
  file.read(name, StoredType::kUInt64, {0, info.shape[0]}, words.data());
  return words;
}

// Checks the number of classes that a dataset of `rows` rows declares.
int64_t count_attribute(const Hdf5File& file, const std::string& key, int64_t rows) {
  const int64_t value = file.int_attribute("", key), most = std::min(std::max(kMostClasses, rows), int64_t{1} << 31);
  require(value > 0 && value <= most, ExitCode::kBadData, file.path(), ": attribute '", key, "' is ", value,
          "; expected a number in [1, ", most, "]");
  return value;
}

void warn_of_lost_bits(const std::string& path, const std::string& what, double largest, double deviation) {
  const double step = std::nextafter(largest, 2 * largest) - largest;
  log_warning(cat(path, ": ", what, ": numbers up to ", largest, " are read in 64 bits, which tell them apart by ",
                  step, ", ", step / deviation, " standard deviations; subtract a constant from them first"));
}

namespace {

// Files of before offsets were stored may have lost what tells large numbers apart.
void warn_of_old_numbers(const std::string& path, const std::string& what, double centre, double deviation) {
  if (!FeatureMoments::loses_bits(std::abs(centre), deviation)) return;
  const auto stored = static_cast<float>(std::abs(centre));
  const double step = std::nextafter(stored, 2 * stored) - stored;
  log_warning(cat(path, ": ", what, " has a mean of ", centre,
                  " and is stored in 32 bits, which tell numbers apart by ", step, ", ", step / deviation,
                  " standard deviations; import it again, or remove its file of hashes: such numbers are stored less "
                  "their mean now"));
}

constexpr int64_t kMostTextBytes = 16 << 20;

// Whether (byte / 255 - mean) / stddev is a finite float for every byte.
bool normalises(double mean, double stddev) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::isfinite(mean) && std::isfinite(stddev) && stddev > 0 && std::abs((0.0 - mean) / stddev) <= kLargest &&
         std::abs((1.0 - mean) / stddev) <= kLargest;
}

// A list that is read as a whole, checked chunk by chunk.
template <class T>
std::vector<T> read_list(RowSource source, const std::vector<uint64_t>& hashes, StoredRows::Check check) {
  StoredRows rows(std::move(source), hashes, int64_t{1} << 62, std::move(check));
  std::vector<T> out(static_cast<size_t>(rows.size()));
  rows.visit({0, rows.size()}, [&](Range piece, const uint8_t* bytes) {
    std::memcpy(out.data() + piece.begin, bytes, static_cast<size_t>(piece.size()) * sizeof(T));
  });
  return out;
}

std::vector<float> read_numbers(std::shared_ptr<const Hdf5File> file, const DatasetHeader& h) {
  auto check_numbers = [path = file->path(), mean = h.target_centre(), stddev = h.target_std](Range rows,
                                                                                              const uint8_t* bytes) {
    const auto* values = reinterpret_cast<const float*>(bytes);
    for (int64_t i = 0; i < rows.size(); ++i)
      require(std::isfinite(static_cast<float>((values[i] - mean) / stddev)), ExitCode::kBadData, path,
              ": the target of row ", rows.begin + i, " is ", values[i],
              ", which cannot be normalised; import it again");
  };
  return read_list<float>(stored_rows(std::move(file), "targets"), h.label_hashes, check_numbers);
}

// `what` lies in `bytes` bytes, one behind the other.
std::vector<int64_t> read_ends(std::shared_ptr<const Hdf5File> file, const std::string& name,
                               const std::vector<uint64_t>& hashes, int64_t bytes, const std::string& what) {
  const std::string path = file->path();
  auto ends = read_list<int64_t>(stored_rows(std::move(file), name), hashes, [](Range, const uint8_t*) {});
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    require(ends[i] > begin && ends[i] <= bytes && ends[i] - begin <= kMostImageBytes, ExitCode::kBadData, path, ": ",
            what, " ", i, " has bytes [", begin, ", ", ends[i], ") of ", bytes, "; import the images again");
    begin = ends[i];
  }
  require(begin == bytes, ExitCode::kBadData, path, ": its ", what, "s end at byte ", begin, " of ", bytes,
          "; import the images again");
  return ends;
}

// Boxes of all images, and where each image's end.
void read_boxes(std::shared_ptr<const Hdf5File> file, DatasetFile& out) {
  DatasetHeader& h = out.header;
  const std::string path = file->path();
  auto check_boxes = [path, classes = h.classes](Range rows, const uint8_t* bytes) {
    const auto* box = reinterpret_cast<const float*>(bytes);
    const auto part = [](float value) { return value >= 0 && value <= 1; };
    for (int64_t i = rows.begin; i < rows.end; ++i, box += kBoxValues)
      require(box[0] >= 0 && box[0] < static_cast<float>(classes) && box[0] == std::floor(box[0]) && part(box[1]) &&
                  part(box[2]) && part(box[3]) && part(box[4]),
              ExitCode::kBadData, path, ": box ", i, " is no class in [0, ", classes, ") and 4 numbers in [0, 1]");
  };
  const StoredRows rows(stored_rows(file, "boxes"), h.label_hashes, int64_t{1} << 62, check_boxes);
  out.boxes.resize(static_cast<size_t>(rows.size() * kBoxValues));
  rows.visit({0, rows.size()}, [&](Range piece, const uint8_t* bytes) {
    std::memcpy(out.boxes.data() + piece.begin * kBoxValues, bytes,
                static_cast<size_t>(piece.size() * rows.row_bytes()));
  });
  h.target_ends =
      read_list<int64_t>(stored_rows(std::move(file), "box_ends"), h.target_end_hashes, [](Range, const uint8_t*) {});
  const std::vector<int64_t>& ends = h.target_ends;
  require(!ends.empty() && std::is_sorted(ends.begin(), ends.end()) && ends.front() >= 0 && ends.back() == rows.size(),
          ExitCode::kBadData, path, ": 'box_ends' does not ascend to the ", rows.size(), " boxes");
}

// Throws where one of a mask's pixels is neither a class nor ignored.
void check_mask(const DatasetHeader& h, const std::string& path, int64_t image, const uint8_t* pixels, int64_t width,
                int64_t count) {
  const auto* bad = std::find_if(pixels, pixels + count, [&](uint8_t v) { return v >= h.classes && v != h.ignored; });
  const int64_t at = bad - pixels;
  require(at == count, ExitCode::kBadData, path, ": mask ", image, " is ", at < count ? *bad : 0, " at row ",
          at / width, ", column ", at % width, ", not in [0, ", h.classes, "); import the images again");
}

std::string bytes_in(const StoredRows& rows, Range range) {
  std::string bytes;
  rows.visit(range, [&](Range piece, const uint8_t* from) {
    bytes.append(reinterpret_cast<const char*>(from), static_cast<size_t>(piece.size()));
  });
  return bytes;
}

// A list of one number for each sample.
void require_list(const Hdf5File& file, const std::string& name, StoredType type, int64_t images,
                  const std::string& what) {
  const Hdf5Info info = list_info(file, name);
  require(info.type == type, ExitCode::kBadData, file.path(), ": dataset '", name, "' holds ", info.type, " of shape ",
          info.shape, "; expected a list of ", type);
  require(info.shape[0] == images, ExitCode::kBadData, file.path(), ": there are ", images, " ", what, ", but ",
          info.shape[0], " ", name);
}

std::string read_text(const Hdf5File& file, const std::string& name) {
  const Hdf5Info info = list_info(file, name);
  require(info.type == StoredType::kUInt8 && info.shape[0] <= kMostTextBytes, ExitCode::kBadData, file.path(),
          ": dataset '", name, "' holds ", info.type, " of shape ", info.shape, "; expected at most ", kMostTextBytes,
          " bytes");
  std::string text(static_cast<size_t>(info.shape[0]), '\0');
  file.read(name, StoredType::kUInt8, {0, info.shape[0]}, text.data());
  return text;
}

std::vector<std::string> read_class_names(const Hdf5File& file, int64_t classes) {
  if (!file.has("class_names")) return {};
  const std::string text = read_text(file, "class_names");
  std::vector<std::string> names;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    names.push_back(text.substr(at, end - at));
  }
  require(static_cast<int64_t>(names.size()) == classes, ExitCode::kBadData, file.path(), ": there are ", classes,
          " classes, but ", names.size(), " names of them");
  return names;
}

void read_boxes_header(const Hdf5File& file, DatasetHeader& h) {
  const Hdf5Info info = file.info("boxes");
  require(info.type == StoredType::kFloat32 && info.shape.rank() == 2 && info.shape[0] > 0 &&
              info.shape[1] == kBoxValues && !info.deflated,
          ExitCode::kBadData, file.path(), ": dataset 'boxes' holds ", info.type, " of shape ", info.shape,
          "; expected float32 [boxes, 5], not compressed");
  require_list(file, "box_ends", StoredType::kInt64, h.images[0], "images");
  h.target_end_hashes = read_hashes(file, "box_ends");
}

void read_numbers_header(const Hdf5File& file, DatasetHeader& h) {
  require_list(file, "targets", StoredType::kFloat32, h.images[0], h.kind == DataKind::kTable ? "rows" : "images");
  const auto mean = file.doubles_attribute("targets", "mean"), stddev = file.doubles_attribute("targets", "std");
  const bool good = mean.size() == 1 && stddev.size() == 1 && normalises(mean[0], stddev[0]);
  require(good, ExitCode::kBadData, file.path(), ": attributes 'mean' and 'std' of dataset 'targets' ",
          "do not give finite targets; both must be one finite number, and std above zero");
  h.target_mean = mean[0], h.target_std = stddev[0];
  if (!file.has_attribute("targets", "offset"))
    return warn_of_old_numbers(file.path(), "the targets", h.target_mean, h.target_std);
  const auto offset = file.doubles_attribute("targets", "offset");
  require(offset.size() == 1 && normalises(mean[0] - offset[0], stddev[0]), ExitCode::kBadData, file.path(),
          ": attribute 'offset' of dataset 'targets' is no finite number");
  h.target_offset = offset[0];
}

void read_masks_header(const Hdf5File& file, DatasetHeader& h) {
  const Hdf5Info info = file.info("masks");
  const Shape wanted = {h.images[0], h.images[1], h.images[2]};
  const bool fits = h.encoded ? info.shape.rank() == 1 : info.shape == wanted;
  require(info.type == StoredType::kUInt8 && fits, ExitCode::kBadData, file.path(), ": dataset 'masks' holds ",
          info.type, " of shape ", info.shape, "; expected uint8 ", h.encoded ? "[bytes]" : to_text(wanted));
  h.ignored = file.int_attribute("masks", "ignore");
  require(h.ignored >= -1 && h.ignored <= 255 && h.classes <= kMostMaskClasses, ExitCode::kBadData, file.path(),
          ": masks of ", h.classes, " classes, of which the value ", h.ignored, " is ignored; expected at most ",
          kMostMaskClasses, " classes, and a value in [-1, 255]");
  if (!h.encoded) return;
  require_list(file, "mask_ends", StoredType::kInt64, h.images[0], "images");
  h.target_end_hashes = read_hashes(file, "mask_ends");
}

void write_words(Hdf5File& file, const std::string& name, const std::vector<uint64_t>& words) {
  file.write_all(name, StoredType::kUInt64, {static_cast<int64_t>(words.size())}, words.data());
}
void write_text(Hdf5File& file, const std::string& name, const std::string& text) {
  if (!text.empty()) file.write_all(name, StoredType::kUInt8, {static_cast<int64_t>(text.size())}, text.data());
}

}  // namespace

void read_classes(const Hdf5File& file, int64_t samples, const std::string& what, DatasetHeader& h) {
  require_list(file, "labels", StoredType::kInt32, samples, what);
  h.classes = count_attribute(file, "classes", samples);
  h.label_hashes = read_hashes(file, "labels");
  h.class_names = read_class_names(file, h.classes);
}

void write_classes(Hdf5File& file, const DatasetHeader& h) {
  if (h.target != TargetKind::kNumbers) file.set_attribute("", "classes", h.classes);
  write_words(file, target_name(h.target) + "_hash", h.label_hashes);
  std::string names;
  for (const std::string& name : h.class_names) names += name + "\n";
  write_text(file, "class_names", names);
}

std::vector<int32_t> read_labels(RowSource source, const DatasetHeader& header) {
  const std::string what = header.kind == DataKind::kTokens  ? "record"
                           : header.kind == DataKind::kTable ? "row"
                                                             : "image";
  auto check_labels = [path = source.path, limit = header.classes, what](Range rows, const uint8_t* bytes) {
    const int32_t* labels = reinterpret_cast<const int32_t*>(bytes);
    for (int64_t i = 0; i < rows.size(); ++i)
      require(labels[i] >= 0 && labels[i] < limit, ExitCode::kBadData, path, ": label of ", what, " ", rows.begin + i,
              " is ", labels[i], ", not in [0, ", limit, "); import the ", what, "s again");
  };
  return read_list<int32_t>(std::move(source), header.label_hashes, check_labels);
}

void read_labelled_header(const Hdf5File& file, DatasetHeader& h) {
  const std::string &path = file.path(), rows = rows_name(h.kind);
  const Hdf5Info info = file.info(rows);
  if (h.encoded) {
    require(info.type == StoredType::kUInt8 && info.shape.rank() == 1 && info.shape[0] > 0, ExitCode::kBadData, path,
            ": dataset 'images' holds ", info.type, " of shape ", info.shape, "; expected a list of uint8");
    const int64_t channels = file.int_attribute("", "channels");
    require(channels == 1 || channels == 3, ExitCode::kBadData, path, ": attribute 'channels' is ", channels,
            "; expected 1 or 3");
    h.images = {list_info(file, "ends").shape[0], 0, 0, channels};
    require_list(file, "ends", StoredType::kInt64, h.images[0], "images");
    h.end_hashes = read_hashes(file, "ends");
  } else if (h.kind == DataKind::kTable) {
    require(info.type == StoredType::kFloat32 && info.shape.rank() == 2 && info.shape.numel() > 0, ExitCode::kBadData,
            path, ": dataset 'features' holds ", info.type, " of shape ", info.shape,
            "; expected float32 [count, features]");
    h.images = info.shape;
    if (file.has("columns")) h.columns = read_text(file, "columns");
  } else {
    require(info.type == StoredType::kUInt8 && info.shape.rank() == 4 && info.shape.numel() > 0, ExitCode::kBadData,
            path, ": dataset 'images' holds ", info.type, " of shape ", info.shape,
            "; expected uint8 [count, height, width, channels]");
    h.images = info.shape;
  }
  const bool table = h.kind == DataKind::kTable;
  for (TargetKind kind : {TargetKind::kNumbers, TargetKind::kMasks, TargetKind::kBoxes})
    if (file.has(target_name(kind)) && (!table || kind == TargetKind::kNumbers)) h.target = kind;
  if (h.target == TargetKind::kLabels) {
    read_classes(file, h.images[0], table ? "rows" : "images", h);
  } else {
    if (h.target == TargetKind::kNumbers) read_numbers_header(file, h);
    else h.classes = count_attribute(file, "classes", h.images[0]);
    if (h.target == TargetKind::kMasks) read_masks_header(file, h);
    if (h.target == TargetKind::kBoxes) read_boxes_header(file, h);
    h.label_hashes = read_hashes(file, target_name(h.target));
    if (h.target != TargetKind::kNumbers) h.class_names = read_class_names(file, h.classes);
  }
  h.mean = file.doubles_attribute(rows, "mean");
  h.stddev = file.doubles_attribute(rows, "std");
  if (table && file.has_attribute(rows, "offset")) {
    h.offset = file.doubles_attribute(rows, "offset");
    require(h.offset.size() == h.mean.size(), ExitCode::kBadData, path, ": attribute 'offset' of dataset '", rows,
            "' has ", h.offset.size(), " values; expected one per feature (", h.mean.size(), ")");
  }
  const std::string each = table ? "feature" : "channel";
  require(static_cast<int64_t>(h.mean.size()) == h.images.back() && h.mean.size() == h.stddev.size(),
          ExitCode::kBadData, path, ": attributes 'mean' and 'std' of dataset '", rows, "' have ", h.mean.size(),
          " and ", h.stddev.size(), " values; expected one per ", each, " (", h.images.back(), ")");
  for (size_t c = 0; c < h.mean.size(); ++c)
    require(normalises(h.centre(c), h.stddev[c]), ExitCode::kBadData, path, ": dataset '", rows, "', ", each, " ", c,
            ": mean ", h.mean[c], " and std ", h.stddev[c],
            " do not give finite samples; both must be finite, and std above zero");
}

void write_labelled_header(Hdf5File& file, const DatasetHeader& h) {
  if (h.target == TargetKind::kNumbers) {
    file.set_attribute("targets", "mean", std::vector<double>{h.target_mean});
    file.set_attribute("targets", "std", std::vector<double>{h.target_std});
    if (h.target_offset != 0) file.set_attribute("targets", "offset", std::vector<double>{h.target_offset});
  }
  if (h.target == TargetKind::kMasks) file.set_attribute("masks", "ignore", h.ignored);
  file.set_attribute(rows_name(h.kind), "mean", h.mean);
  file.set_attribute(rows_name(h.kind), "std", h.stddev);
  if (!h.offset.empty()) file.set_attribute(rows_name(h.kind), "offset", h.offset);
  write_classes(file, h);
  if (h.encoded) {
    file.set_attribute("", "channels", h.images[3]);
    write_words(file, "ends_hash", h.end_hashes);
  }
  if (h.target == TargetKind::kBoxes) write_words(file, "box_ends_hash", h.target_end_hashes);
  if (h.target == TargetKind::kMasks && h.encoded) write_words(file, "mask_ends_hash", h.target_end_hashes);
  write_text(file, "columns", h.columns);
}

void hash_labelled(const DatasetHeader& h, Hasher128& hasher) {
  auto add = [&](const auto& list) { hasher.update(list.data(), list.size() * sizeof list[0]); };
  if (h.encoded) add(cat("encoded images ", h.images[0], " channels ", h.images[3]));
  else add(cat(h.kind == DataKind::kTable ? "table " : "images ", h.images));
  if (h.target == TargetKind::kNumbers) add(std::string(" targets"));
  else
    add(cat(" classes ", h.classes,
            h.target == TargetKind::kMasks   ? cat(" masks ignore ", h.ignored)
            : h.target == TargetKind::kBoxes ? std::string(" boxes")
                                             : ""));
  add(std::string("\n"));
  add(h.mean);
  add(h.stddev);
  add(h.offset);
  add(h.hashes);
  if (h.encoded) add(h.end_hashes);
  add(h.label_hashes);
  add(h.target_end_hashes);
  if (h.target == TargetKind::kNumbers) add(std::vector<double>{h.target_mean, h.target_std});
  if (h.target_offset != 0) add(std::vector<double>{h.target_offset});
}

namespace {

void open_rows(RowSource rows, int64_t memory_bytes, DatasetFile& out) {
  const DatasetHeader& h = out.header;
  StoredRows::Check check = [](Range, const uint8_t*) {};
  if (h.kind == DataKind::kTable) {
    std::vector<double> centres;
    for (size_t c = 0; c < h.mean.size(); ++c) {
      centres.push_back(h.centre(c));
      warn_of_old_numbers(out.path, cat("feature ", c), centres[c], h.stddev[c]);
    }
    check = [path = out.path, columns = h.images[1], mean = std::move(centres), stddev = h.stddev](
                Range rows, const uint8_t* bytes) {
      const auto* values = reinterpret_cast<const float*>(bytes);
      for (int64_t i = 0; i < rows.size() * columns; ++i) {
        const auto c = static_cast<size_t>(i % columns);
        require(std::isfinite(static_cast<float>((values[i] - mean[c]) / stddev[c])), ExitCode::kBadData, path,
                ": feature ", c, " of row ", rows.begin + i / columns, " is ", values[i],
                ", which cannot be normalised; import the table again");
      }
    };
  }
  out.rows = std::make_unique<StoredRows>(std::move(rows), h.hashes, memory_bytes, check);
}

}  // namespace

void open_labelled(std::shared_ptr<const Hdf5File> file, int64_t memory_bytes, DatasetFile& out) {
  const DatasetHeader& h = out.header;
  const bool masks = h.target == TargetKind::kMasks;
  const int64_t for_masks = masks ? memory_bytes / (1 + h.images[3]) : 0;  // of a pixel's bytes, its mask is one
  open_rows(stored_rows(file, rows_name(h.kind)), memory_bytes - for_masks, out);
  if (h.encoded) out.header.ends = read_ends(file, "ends", h.end_hashes, out.rows->size(), "image");
  if (h.target == TargetKind::kNumbers) out.numbers = read_numbers(file, h);
  if (h.target == TargetKind::kLabels) out.labels = read_labels(stored_rows(file, "labels"), h);
  if (h.target == TargetKind::kBoxes) read_boxes(file, out);
  if (!masks) return;
  StoredRows::Check check_masks = [](Range, const uint8_t*) {};
  if (!h.encoded)
    check_masks = [&h, path = out.path](Range rows, const uint8_t* bytes) {
      const int64_t pixels = h.images[1] * h.images[2];
      for (int64_t i = rows.begin; i < rows.end; ++i, bytes += pixels)
        check_mask(h, path, i, bytes, h.images[2], pixels);
    };
  out.masks = std::make_unique<StoredRows>(stored_rows(file, "masks"), h.label_hashes, for_masks, check_masks);
  if (h.encoded) out.header.target_ends = read_ends(file, "mask_ends", h.target_end_hashes, out.masks->size(), "mask");
}

void open_labelled(RowSource rows, RowSource labels, int64_t memory_bytes, DatasetFile& out) {
  open_rows(std::move(rows), memory_bytes, out);
  out.labels = read_labels(std::move(labels), out.header);
}

std::span<const float> DatasetFile::boxes_of(int64_t image) const {
  const Range range = part_of(header.target_ends, image);
  return {boxes.data() + range.begin * kBoxValues, static_cast<size_t>(range.size() * kBoxValues)};
}

std::string DatasetFile::encoded_file(int64_t index) const { return bytes_in(*rows, part_of(header.ends, index)); }

ByteImage DatasetFile::decoded(int64_t index) const {
  return decode_image(encoded_file(index), header.images[3], cat(path, ": image ", index));
}

std::vector<uint8_t> DatasetFile::mask(int64_t index, int64_t height, int64_t width) const {
  if (!header.encoded) {
    std::vector<uint8_t> out;
    masks->visit({index, index + 1},
                 [&](Range, const uint8_t* pixels) { out.assign(pixels, pixels + height * width); });
    return out;
  }
  ByteImage out = decode_mask(bytes_in(*masks, part_of(header.target_ends, index)), cat(path, ": mask ", index));
  require(out.height == height && out.width == width, ExitCode::kBadData, path, ": mask ", index, " has ", out.height,
          " x ", out.width, " pixels, its image ", height, " x ", width, "; import the images again");
  check_mask(header, path, index, out.bytes.data(), width, height * width);
  return std::move(out.bytes);
}

}  // namespace lockstep
