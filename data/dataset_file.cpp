#include "data/dataset_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "core/base/error.h"
#include "data/codecs/image_codec.h"
#include "data/tokenizer/tokenizer_file.h"

namespace lockstep {
namespace {

constexpr const char* kFormat = "lockstep-data";
constexpr int64_t kTokensPerChunk = 64 << 10;
constexpr int64_t kImageChunkBytes = 128 << 10;
constexpr int64_t kMostCodePoints = 0x110000;
constexpr int64_t kMostNameBytes = 16 << 20;

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

std::unique_ptr<Vocabulary> read_vocabulary(const Hdf5File& file) {
  std::string level = file.string_attribute("", "level");
  if (level == "byte") return std::make_unique<Vocabulary>(Vocabulary::bytes());
  if (level == "ids") return nullptr;
  if (level == "bpe") {
    const Hdf5Info info = list_info(file, "tokenizer");
    require(info.shape[0] > 0 && info.shape[0] <= static_cast<int64_t>(kLargestTokenizer), ExitCode::kBadData,
            file.path(), ": dataset 'tokenizer' has shape ", info.shape, "; expected at most ", kLargestTokenizer,
            " bytes");
    std::string text(static_cast<size_t>(info.shape[0]), '\0');
    file.read("tokenizer", StoredType::kUInt8, {0, info.shape[0]}, text.data());
    return std::make_unique<Vocabulary>(
        Vocabulary::byte_pairs(parse_tokenizer_json(text, cat(file.path(), ": dataset 'tokenizer'"))));
  }
  require(level == "char", ExitCode::kBadData, file.path(), ": level '", level, "' is not one of byte, char, bpe, ids");
  const Hdf5Info info = list_info(file, "vocabulary");
  require(info.shape[0] > 0 && info.shape[0] <= kMostCodePoints, ExitCode::kBadData, file.path(),
          ": dataset 'vocabulary' has shape ", info.shape, "; expected a list of code points");
  std::vector<uint32_t> points(static_cast<size_t>(info.shape[0]));
  file.read("vocabulary", StoredType::kUInt32, {0, info.shape[0]}, points.data());
  for (size_t i = 0; i < points.size(); ++i)
    require(points[i] < kMostCodePoints && (i == 0 || points[i - 1] < points[i]), ExitCode::kBadData, file.path(),
            ": vocabulary entry ", i, " (", points[i], ") is not a code point greater than the previous one");
  return std::make_unique<Vocabulary>(Vocabulary::chars(std::move(points)));
}

// Checks the number of classes that a dataset of `rows` rows declares.
int64_t count_attribute(const Hdf5File& file, const std::string& key, int64_t rows) {
  const int64_t value = file.int_attribute("", key), most = std::min(std::max(kMostClasses, rows), int64_t{1} << 31);
  require(value > 0 && value <= most, ExitCode::kBadData, file.path(), ": attribute '", key, "' is ", value,
          "; expected a number in [1, ", most, "]");
  return value;
}

// Whether (byte / 255 - mean) / stddev is a finite float for every byte.
bool normalises(double mean, double stddev) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::isfinite(mean) && std::isfinite(stddev) && stddev > 0 && std::abs((0.0 - mean) / stddev) <= kLargest &&
         std::abs((1.0 - mean) / stddev) <= kLargest;
}

template <class T>
int64_t first_beyond(const uint8_t* bytes, int64_t count, int64_t limit) {
  if (limit > static_cast<int64_t>(std::numeric_limits<T>::max())) return -1;
  // Compares the maximum first: that vectorises, and almost always suffices.
  const T* ids = reinterpret_cast<const T*>(bytes);
  T largest = 0;
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, ids[i]);
  if (static_cast<int64_t>(largest) < limit) return -1;
  return std::find_if(ids, ids + count, [&](T id) { return static_cast<int64_t>(id) >= limit; }) - ids;
}

int64_t first_beyond(StoredType type, const uint8_t* bytes, int64_t count, int64_t limit) {
  if (type == StoredType::kUInt8) return first_beyond<uint8_t>(bytes, count, limit);
  if (type == StoredType::kUInt16) return first_beyond<uint16_t>(bytes, count, limit);
  return first_beyond<uint32_t>(bytes, count, limit);
}

std::unique_ptr<StoredRows> open_tokens(std::shared_ptr<const Hdf5File> file, const DatasetHeader& header,
                                        int64_t memory_bytes) {
  StoredType type = file->info("tokens").type;
  auto check_ids = [path = file->path(), limit = header.vocabulary_size, type](Range rows, const uint8_t* bytes) {
    int64_t at = first_beyond(type, bytes, rows.size(), limit);
    if (at < 0) return;
    uint32_t id = 0;
    std::memcpy(&id, bytes + at * size_of(type), static_cast<size_t>(size_of(type)));
    throw Error(ExitCode::kBadData, cat(path, ": token ", rows.begin + at, " is ", id, ", beyond the vocabulary of ",
                                        limit, "; import the text again"));
  };
  return std::make_unique<StoredRows>(std::move(file), "tokens", header.hashes, memory_bytes, check_ids);
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

std::vector<int32_t> read_labels(std::shared_ptr<const Hdf5File> file, const DatasetHeader& header) {
  auto check_labels = [path = file->path(), limit = header.classes](Range rows, const uint8_t* bytes) {
    const int32_t* labels = reinterpret_cast<const int32_t*>(bytes);
    for (int64_t i = 0; i < rows.size(); ++i)
      require(labels[i] >= 0 && labels[i] < limit, ExitCode::kBadData, path, ": label of image ", rows.begin + i,
              " is ", labels[i], ", not in [0, ", limit, "); import the images again");
  };
  return read_list<int32_t>(std::move(file), "labels", header.label_hashes, check_labels);
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

// A list of one number for each image.
void require_list(const Hdf5File& file, const std::string& name, StoredType type, int64_t images) {
  const Hdf5Info info = list_info(file, name);
  require(info.type == type, ExitCode::kBadData, file.path(), ": dataset '", name, "' holds ", info.type, " of shape ",
          info.shape, "; expected a list of ", type);
  require(info.shape[0] == images, ExitCode::kBadData, file.path(), ": there are ", images, " images, but ",
          info.shape[0], " ", name);
}

std::vector<std::string> read_class_names(const Hdf5File& file, int64_t classes) {
  if (!file.has("class_names")) return {};
  const Hdf5Info info = list_info(file, "class_names");
  require(info.type == StoredType::kUInt8 && info.shape[0] <= kMostNameBytes, ExitCode::kBadData, file.path(),
          ": dataset 'class_names' holds ", info.type, " of shape ", info.shape, "; expected at most ", kMostNameBytes,
          " bytes");
  std::string text(static_cast<size_t>(info.shape[0]), '\0');
  file.read("class_names", StoredType::kUInt8, {0, info.shape[0]}, text.data());
  std::vector<std::string> names;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find('\n', at), text.size());
    names.push_back(text.substr(at, end - at));
  }
  require(static_cast<int64_t>(names.size()) == classes, ExitCode::kBadData, file.path(), ": there are ", classes,
          " classes, but ", names.size(), " names of them");
  return names;
}

}  // namespace

Hash128 DatasetHeader::computed_identity() const {
  Hasher128 hasher;
  auto add = [&](const auto& list) { hasher.update(list.data(), list.size() * sizeof list[0]); };
  if (kind == DataKind::kTokens) {
    add(cat("tokens ", tokens, " level ", level(), " vocabulary ", vocabulary_size, "\n"));
    if (vocabulary) add(vocabulary->code_points());
    if (vocabulary && vocabulary->pairs()) add(tokenizer_json(vocabulary->pairs()->tables()));
    add(hashes);
  } else {
    if (encoded) add(cat("encoded images ", images[0], " channels ", images[3], " classes ", classes, "\n"));
    else add(cat("images ", images, " classes ", classes, "\n"));
    add(mean);
    add(stddev);
    add(hashes);
    if (encoded) add(end_hashes);
    add(label_hashes);
  }
  return hasher.digest();
}

DatasetHeader read_dataset_header(const Hdf5File& file) {
  const std::string& path = file.path();
  require(file.has_attribute("", "format") && file.string_attribute("", "format") == kFormat, ExitCode::kBadData, path,
          ": is an HDF5 file, but not a lockstep dataset; make one with `lockstep data import`");
  int64_t version = file.int_attribute("", "version");
  require(version == kDatasetVersion, ExitCode::kBadData, path, ": has dataset format version ", version,
          "; this program reads version ", kDatasetVersion);
  DatasetHeader h;
  std::string kind = file.string_attribute("", "kind");
  h.encoded = kind == "encoded_images";
  require(kind == "tokens" || kind == "images" || h.encoded, ExitCode::kBadData, path, ": kind '", kind,
          "' is none of tokens, images and encoded_images");
  if (h.encoded) kind = "images";
  h.kind = kind == "tokens" ? DataKind::kTokens : DataKind::kImages;
  h.hashes = read_hashes(file, kind);
  Hdf5Info info = file.info(kind);
  if (h.kind == DataKind::kTokens) {
    bool good = info.type == StoredType::kUInt8 || info.type == StoredType::kUInt16 || info.type == StoredType::kUInt32;
    require(good && info.shape.rank() == 1 && info.shape[0] > 0, ExitCode::kBadData, path, ": dataset 'tokens' holds ",
            info.type, " of shape ", info.shape, "; expected a list of uint8, uint16 or uint32");
    h.tokens = info.shape[0];
    h.vocabulary = read_vocabulary(file);
    h.vocabulary_size = count_attribute(file, "vocabulary_size", h.tokens);
    require(!h.vocabulary || h.vocabulary->size() == h.vocabulary_size, ExitCode::kBadData, path,
            ": vocabulary_size is ", h.vocabulary_size, ", but the vocabulary has ",
            h.vocabulary ? h.vocabulary->size() : 0, " entries");
  } else {
    if (h.encoded) {
      require(info.type == StoredType::kUInt8 && info.shape.rank() == 1 && info.shape[0] > 0, ExitCode::kBadData, path,
              ": dataset 'images' holds ", info.type, " of shape ", info.shape, "; expected a list of uint8");
      const int64_t channels = file.int_attribute("", "channels");
      require(channels == 1 || channels == 3, ExitCode::kBadData, path, ": attribute 'channels' is ", channels,
              "; expected 1 or 3");
      h.images = {list_info(file, "ends").shape[0], 0, 0, channels};
      require_list(file, "ends", StoredType::kInt64, h.images[0]);
      h.end_hashes = read_hashes(file, "ends");
    } else {
      require(info.type == StoredType::kUInt8 && info.shape.rank() == 4 && info.shape.numel() > 0, ExitCode::kBadData,
              path, ": dataset 'images' holds ", info.type, " of shape ", info.shape,
              "; expected uint8 [count, height, width, channels]");
      h.images = info.shape;
    }
    require_list(file, "labels", StoredType::kInt32, h.images[0]);
    h.classes = count_attribute(file, "classes", h.images[0]);
    h.label_hashes = read_hashes(file, "labels");
    h.class_names = read_class_names(file, h.classes);
    h.mean = file.doubles_attribute("images", "mean");
    h.stddev = file.doubles_attribute("images", "std");
    require(static_cast<int64_t>(h.mean.size()) == h.images[3] && h.mean.size() == h.stddev.size(), ExitCode::kBadData,
            path, ": attributes 'mean' and 'std' of dataset 'images' have ", h.mean.size(), " and ", h.stddev.size(),
            " values; expected one per channel (", h.images[3], ")");
    for (size_t c = 0; c < h.mean.size(); ++c)
      require(normalises(h.mean[c], h.stddev[c]), ExitCode::kBadData, path, ": dataset 'images', channel ", c,
              ": mean ", h.mean[c], " and std ", h.stddev[c],
              " do not give finite samples; both must be finite, and std above zero");
  }
  h.identity = h.computed_identity();
  std::string stored = file.string_attribute("", "identity");
  require(stored == to_hex(h.identity), ExitCode::kBadData, path, ": its identity is ", stored,
          ", but its header gives ", h.identity, ": header or chunk hashes were changed; import the data again");
  return h;
}

void write_dataset_header(Hdf5File& file, DatasetHeader& h) {
  bool tokens = h.kind == DataKind::kTokens;
  std::string kind = tokens ? "tokens" : "images";
  auto write_words = [&](const std::string& name, const std::vector<uint64_t>& words) {
    file.write_all(name, StoredType::kUInt64, {static_cast<int64_t>(words.size())}, words.data());
  };
  file.set_attribute("", "format", std::string(kFormat));
  file.set_attribute("", "version", kDatasetVersion);
  file.set_attribute("", "kind", h.encoded ? "encoded_" + kind : kind);
  write_words(kind + "_hash", h.hashes);
  if (tokens) {
    file.set_attribute("", "level", h.level());
    file.set_attribute("", "vocabulary_size", h.vocabulary_size);
    if (h.vocabulary && h.vocabulary->level() == TextLevel::kChar)
      file.write_all("vocabulary", StoredType::kUInt32, {h.vocabulary_size}, h.vocabulary->code_points().data());
    if (h.vocabulary && h.vocabulary->pairs()) {
      const std::string text = tokenizer_json(h.vocabulary->pairs()->tables());
      file.write_all("tokenizer", StoredType::kUInt8, {static_cast<int64_t>(text.size())}, text.data());
    }
  } else {
    file.set_attribute("", "classes", h.classes);
    file.set_attribute("images", "mean", h.mean);
    file.set_attribute("images", "std", h.stddev);
    write_words("labels_hash", h.label_hashes);
    if (h.encoded) {
      file.set_attribute("", "channels", h.images[3]);
      write_words("ends_hash", h.end_hashes);
    }
    if (!h.class_names.empty()) {
      std::string text;
      for (const std::string& name : h.class_names) text += name + "\n";
      file.write_all("class_names", StoredType::kUInt8, {static_cast<int64_t>(text.size())}, text.data());
    }
  }
  h.identity = h.computed_identity();
  file.set_attribute("", "identity", to_hex(h.identity));
}

StoredType token_type(int64_t vocabulary_size) {
  if (vocabulary_size <= 1 << 8) return StoredType::kUInt8;
  return vocabulary_size <= 1 << 16 ? StoredType::kUInt16 : StoredType::kUInt32;
}

int64_t tokens_per_chunk() { return kTokensPerChunk; }
int64_t images_per_chunk(int64_t image_bytes) { return std::max<int64_t>(1, kImageChunkBytes / image_bytes); }

ChunkWriter::ChunkWriter(Hdf5File& file, std::string name, StoredType type, const Shape& shape, int64_t chunk_rows)
    : file_(file),
      name_(std::move(name)),
      type_(type),
      rows_(shape[0]),
      chunk_rows_(std::min(chunk_rows, rows_)),
      row_bytes_(rows_ > 0 ? shape.numel() / rows_ * size_of(type) : 0) {
  file_.create_dataset(name_, type_, shape, {.chunk_rows = chunk_rows_});
  pending_.reserve(static_cast<size_t>(chunk_rows_ * row_bytes_));
}

void ChunkWriter::append(const void* rows, int64_t count) {
  const uint8_t* bytes = static_cast<const uint8_t*>(rows);
  size_t chunk_bytes = static_cast<size_t>(chunk_rows_ * row_bytes_);
  for (size_t left = static_cast<size_t>(count * row_bytes_); left > 0;) {
    size_t part = std::min(left, chunk_bytes - pending_.size());
    pending_.insert(pending_.end(), bytes, bytes + part);
    bytes += part;
    left -= part;
    if (pending_.size() == chunk_bytes) flush();
  }
}

void ChunkWriter::flush() {
  int64_t rows = static_cast<int64_t>(pending_.size()) / row_bytes_;
  check(written_ + rows <= rows_, "more rows than announced for '", name_, "': ", rows_);
  file_.write(name_, type_, {written_, written_ + rows}, pending_.data());
  hashes_.push_back(hash64(pending_.data(), pending_.size()));
  written_ += rows;
  pending_.clear();
}

std::vector<uint64_t> ChunkWriter::finish() {
  if (!pending_.empty()) flush();
  check(written_ == rows_, "'", name_, "' got ", written_, " rows of ", rows_);
  return std::move(hashes_);
}

std::shared_ptr<const DatasetFile> open_dataset_file(const std::string& path, int64_t memory_bytes) {
  auto file = std::make_shared<const Hdf5File>(Hdf5File::open(path));
  auto out = std::make_shared<DatasetFile>();
  out->path = path;
  out->header = read_dataset_header(*file);
  if (out->header.kind == DataKind::kTokens) {
    out->rows = open_tokens(file, out->header, memory_bytes);
  } else {
    out->rows =
        std::make_unique<StoredRows>(file, "images", out->header.hashes, memory_bytes, [](Range, const uint8_t*) {});
    out->labels = read_labels(file, out->header);
    if (out->header.encoded) out->header.ends = read_ends(file, out->header, out->rows->size());
  }
  return out;
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
