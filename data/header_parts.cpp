#include "data/header_parts.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "data/codecs/image_codec.h"

namespace lockstep {

std::string rows_name(DataKind kind) {
  return kind == DataKind::kTokens ? "tokens" : kind == DataKind::kTable ? "features" : "images";
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

namespace {

constexpr int64_t kMostTextBytes = 16 << 20;

// Whether (byte / 255 - mean) / stddev is a finite float for every byte.
bool normalises(double mean, double stddev) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::isfinite(mean) && std::isfinite(stddev) && stddev > 0 && std::abs((0.0 - mean) / stddev) <= kLargest &&
         std::abs((1.0 - mean) / stddev) <= kLargest;
}

// A list that is read as a whole, checked chunk by chunk.
template <class T>
std::vector<T> read_list(std::shared_ptr<const Hdf5File> file, const std::string& name,
                         const std::vector<uint64_t>& hashes, StoredRows::Check check) {
  StoredRows rows(std::move(file), name, hashes, int64_t{1} << 62, std::move(check));
  std::vector<T> out(static_cast<size_t>(rows.size()));
  rows.visit({0, rows.size()}, [&](Range piece, const uint8_t* bytes) {
    std::memcpy(out.data() + piece.begin, bytes, static_cast<size_t>(piece.size()) * sizeof(T));
  });
  return out;
}

std::vector<int64_t> read_ends(std::shared_ptr<const Hdf5File> file, const DatasetHeader& header, int64_t bytes) {
  const std::string path = file->path();
  auto ends = read_list<int64_t>(std::move(file), "ends", header.end_hashes, [](Range, const uint8_t*) {});
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    require(ends[i] > begin && ends[i] <= bytes && ends[i] - begin <= kMostImageBytes, ExitCode::kBadData, path,
            ": image ", i, " has bytes [", begin, ", ", ends[i], ") of ", bytes, "; import the images again");
    begin = ends[i];
  }
  require(begin == bytes, ExitCode::kBadData, path, ": its images end at byte ", begin, " of ", bytes,
          "; import the images again");
  return ends;
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
  file.set_attribute("", "classes", h.classes);
  write_words(file, "labels_hash", h.label_hashes);
  std::string names;
  for (const std::string& name : h.class_names) names += name + "\n";
  write_text(file, "class_names", names);
}

std::vector<int32_t> read_labels(std::shared_ptr<const Hdf5File> file, const DatasetHeader& header,
                                 const std::string& what) {
  auto check_labels = [path = file->path(), limit = header.classes, what](Range rows, const uint8_t* bytes) {
    const int32_t* labels = reinterpret_cast<const int32_t*>(bytes);
    for (int64_t i = 0; i < rows.size(); ++i)
      require(labels[i] >= 0 && labels[i] < limit, ExitCode::kBadData, path, ": label of ", what, " ", rows.begin + i,
              " is ", labels[i], ", not in [0, ", limit, "); import the ", what, "s again");
  };
  return read_list<int32_t>(std::move(file), "labels", header.label_hashes, check_labels);
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
  read_classes(file, h.images[0], table ? "rows" : "images", h);
  h.mean = file.doubles_attribute(rows, "mean");
  h.stddev = file.doubles_attribute(rows, "std");
  const std::string each = table ? "feature" : "channel";
  require(static_cast<int64_t>(h.mean.size()) == h.images.back() && h.mean.size() == h.stddev.size(),
          ExitCode::kBadData, path, ": attributes 'mean' and 'std' of dataset '", rows, "' have ", h.mean.size(),
          " and ", h.stddev.size(), " values; expected one per ", each, " (", h.images.back(), ")");
  for (size_t c = 0; c < h.mean.size(); ++c)
    require(normalises(h.mean[c], h.stddev[c]), ExitCode::kBadData, path, ": dataset '", rows, "', ", each, " ", c,
            ": mean ", h.mean[c], " and std ", h.stddev[c],
            " do not give finite samples; both must be finite, and std above zero");
}

void write_labelled_header(Hdf5File& file, const DatasetHeader& h) {
  file.set_attribute(rows_name(h.kind), "mean", h.mean);
  file.set_attribute(rows_name(h.kind), "std", h.stddev);
  write_classes(file, h);
  if (h.encoded) {
    file.set_attribute("", "channels", h.images[3]);
    write_words(file, "ends_hash", h.end_hashes);
  }
  write_text(file, "columns", h.columns);
}

void hash_labelled(const DatasetHeader& h, Hasher128& hasher) {
  auto add = [&](const auto& list) { hasher.update(list.data(), list.size() * sizeof list[0]); };
  if (h.encoded) add(cat("encoded images ", h.images[0], " channels ", h.images[3], " classes ", h.classes, "\n"));
  else add(cat(h.kind == DataKind::kTable ? "table " : "images ", h.images, " classes ", h.classes, "\n"));
  add(h.mean);
  add(h.stddev);
  add(h.hashes);
  if (h.encoded) add(h.end_hashes);
  add(h.label_hashes);
}

void open_labelled(std::shared_ptr<const Hdf5File> file, int64_t memory_bytes, DatasetFile& out) {
  const DatasetHeader& h = out.header;
  StoredRows::Check check = [](Range, const uint8_t*) {};
  if (h.kind == DataKind::kTable)
    check = [path = out.path, columns = h.images[1], mean = h.mean, stddev = h.stddev](Range rows,
                                                                                       const uint8_t* bytes) {
      const auto* values = reinterpret_cast<const float*>(bytes);
      for (int64_t i = 0; i < rows.size() * columns; ++i) {
        const auto c = static_cast<size_t>(i % columns);
        require(std::isfinite(static_cast<float>((values[i] - mean[c]) / stddev[c])), ExitCode::kBadData, path,
                ": feature ", c, " of row ", rows.begin + i / columns, " is ", values[i],
                ", which cannot be normalised; import the table again");
      }
    };
  out.rows = std::make_unique<StoredRows>(file, rows_name(h.kind), h.hashes, memory_bytes, check);
  out.labels = read_labels(file, h, h.kind == DataKind::kTable ? "row" : "image");
  if (h.encoded) out.header.ends = read_ends(file, h, out.rows->size());
}

std::string DatasetFile::encoded_file(int64_t index) const {
  std::string bytes;
  rows->visit(header.bytes_of(index), [&](Range piece, const uint8_t* from) {
    bytes.append(reinterpret_cast<const char*>(from), static_cast<size_t>(piece.size()));
  });
  return bytes;
}

ByteImage DatasetFile::decoded(int64_t index) const {
  return decode_image(encoded_file(index), header.images[3], cat(path, ": image ", index));
}

}  // namespace lockstep
