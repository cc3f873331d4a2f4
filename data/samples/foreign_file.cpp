#include "data/samples/foreign_file.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <set>

#include "core/base/error.h"
#include "core/base/hash.h"
#include "core/base/log.h"
#include "core/io/half.h"
#include "core/io/pending_file.h"
#include "data/samples/channel_sums.h"
#include "data/samples/header_parts.h"
#include "data/samples/label_index.h"
#include "data/store/same_pass.h"

namespace lockstep {
namespace {

constexpr const char* kHashesFormat = "lockstep-hashes";
constexpr int64_t kHashesVersion = 1;

std::string without_root(const std::string& name) {
  const size_t begin = name.find_first_not_of('/');
  return begin == name.npos ? "" : name.substr(begin);
}

template <class T>
double value_at(const uint8_t* bytes, int64_t i) {
  T value;
  std::memcpy(&value, bytes + i * static_cast<int64_t>(sizeof value), sizeof value);
  return static_cast<double>(value);
}

double number_at(StoredType type, const uint8_t* bytes, int64_t i) {
  switch (type) {
    case StoredType::kFloat32: return value_at<float>(bytes, i);
    case StoredType::kFloat64: return value_at<double>(bytes, i);
    case StoredType::kInt64: return value_at<int64_t>(bytes, i);
    case StoredType::kInt32: return value_at<int32_t>(bytes, i);
    case StoredType::kUInt8: return value_at<uint8_t>(bytes, i);
    case StoredType::kUInt16: return value_at<uint16_t>(bytes, i);
    case StoredType::kUInt32: return value_at<uint32_t>(bytes, i);
    case StoredType::kUInt64: return value_at<uint64_t>(bytes, i);
    default: break;
  }
  uint16_t bits;
  std::memcpy(&bits, bytes + 2 * i, 2);
  return type == StoredType::kFloat16 ? from_fp16_bits(bits) : from_bf16_bits(bits);
}

bool is_integer(StoredType type) {
  return type != StoredType::kFloat32 && type != StoredType::kFloat64 && type != StoredType::kFloat16 &&
         type != StoredType::kBFloat16;
}

bool is_file(const std::string& path) {
  std::error_code none;
  return std::filesystem::is_regular_file(path, none);
}

bool can_be_written(const std::string& path) {
  try {
    PendingFile trial(path, true);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::string in_one_name(std::string text) {
  std::replace(text.begin(), text.end(), '/', '-');
  return text;
}

// Whether several pairs of datasets in the file would have this name.
bool has_namesakes(const std::string& path, const std::string& both) {
  std::multiset<std::string> names;
  for (const std::string& name : Hdf5File::open(path).list()) names.insert(in_one_name(name));
  size_t pairs = 0;
  for (const std::string& name : names)
    if (both.starts_with(name + ".")) pairs += names.count(both.substr(name.size() + 1));
  return pairs > 1;
}

// One file and the two datasets in it.
class ForeignFile {
 public:
  ForeignFile(const std::string& path, const std::string& samples, const std::string& labels,
              const std::string& other_folder, ImageLayout layout)
      : file_(std::make_shared<const Hdf5File>(Hdf5File::open(path))),
        path_(path),
        other_folder_(other_folder),
        hashes_path_(hashes_path(path, samples, labels)),
        samples_(without_root(samples)),
        labels_(without_root(labels)),
        layout_(layout) {
    if (!other_folder.empty() && !is_file(hashes_path_)) {
      const std::string other = hashes_path(path, samples, labels, other_folder);
      if (is_file(other) || !can_be_written(hashes_path_)) hashes_path_ = other;
    }
    require(!samples_.empty() && !labels_.empty(), ExitCode::kConfig,
            "data.hdf5.samples and data.hdf5.labels must both be set: they name two datasets of ", path);
    for (const std::string& name : {samples_, labels_})
      require(file_->has(name), ExitCode::kConfig, path, ": holds no dataset '", name, "'");
    describe();
  }

  std::shared_ptr<DatasetFile> open(int64_t memory_bytes) {
    if (!read_hashes_file()) make_hashes();
    auto out = std::make_shared<DatasetFile>();
    out->path = path_;
    RowSource samples = sample_rows(), labels = label_rows();
    out->header = std::move(header_);
    open_labelled(std::move(samples), std::move(labels), memory_bytes, *out);
    return out;
  }

 private:
  void describe() {
    const Hdf5Info x = file_->info(samples_), y = file_->info(labels_);
    type_ = x.type, label_type_ = y.type;
    const int rank = x.shape.rank();
    const bool images = x.type == StoredType::kUInt8 && (rank == 3 || rank == 4);
    require((images || rank == 2) && x.shape.numel() > 0, ExitCode::kBadData, path_, ": dataset '", samples_,
            "' holds ", x.type, " of shape ", x.shape,
            "; images are uint8 [count, height, width], [count, height, width, channels] or [count, channels, height, "
            "width], ",
            "features are numbers [count, features]");
    require(y.shape == Shape{x.shape[0]} && is_integer(y.type), ExitCode::kBadData, path_, ": dataset '", labels_,
            "' holds ", y.type, " of shape ", y.shape, "; labels are integers, one for each of ", x.shape[0],
            " samples");
    header_.kind = images ? DataKind::kImages : DataKind::kTable;
    header_.images = x.shape;
    if (rank == 3) header_.images.push_back(1);
    require((images && rank == 4) || layout_ == ImageLayout::kByShape, ExitCode::kConfig,
            "data.hdf5.layout is set, but dataset '", samples_, "' of ", path_, " has shape ", x.shape,
            ", in which no axis holds channels: leave it out");
    if (images && rank == 4)
      layout_ = layout_of(x.shape, layout_, str(path_, ": dataset '", samples_, "'"),
                          "data.hdf5.layout: nchw or data.hdf5.layout: nhwc");
    if (images && rank == 4 && layout_ == ImageLayout::kChannelsFirst) header_.images = with_channels_last(x.shape);
    require(images || x.shape[1] <= kMostFeatures, ExitCode::kBadData, path_, ": dataset '", samples_, "' has ",
            x.shape[1], " features; at most ", kMostFeatures, " are possible");
    // A stored chunk is not cut, which would read it several times.
    chunk_rows_ = std::max(rows_per_chunk(header_), x.chunk_rows);
  }

  RowSource sample_rows() const {
    RowSource out{path_, samples_, header_.images, StoredType::kUInt8, chunk_rows_, {}, remedy()};
    out.read = [file = file_, name = samples_](IndexRange rows, uint8_t* to) {
      file->read(name, StoredType::kUInt8, rows, to);
    };
    if (header_.kind == DataKind::kImages && layout_ == ImageLayout::kChannelsFirst)
      out.read = [read = std::move(out.read), shape = header_.images, bytes = out.row_bytes()](IndexRange rows,
                                                                                               uint8_t* to) {
        std::vector<uint8_t> stored(static_cast<size_t>(rows.size() * bytes));
        read(rows, stored.data());
        to_channels_last(stored.data(), rows.size(), shape, to);
      };
    if (header_.kind == DataKind::kImages) return out;
    out.type = StoredType::kFloat32;
    const auto columns = static_cast<size_t>(header_.images[1]);
    const std::vector<double> offset = header_.offset.empty() ? std::vector<double>(columns) : header_.offset;
    out.read = [numbers = numbers(), offset](IndexRange rows, uint8_t* to) {
      auto* values = reinterpret_cast<float*>(to);
      size_t i = 0;
      for (double value : numbers(rows)) values[i] = static_cast<float>(value - offset[i % offset.size()]), ++i;
    };
    return out;
  }

  // Reads the features of some rows.
  std::function<std::vector<double>(IndexRange rows)> numbers() const {
    return [file = file_, name = samples_, type = type_, columns = header_.images[1]](IndexRange rows) {
      std::vector<uint8_t> bytes(static_cast<size_t>(rows.size() * columns * size_of(type)));
      file->read(name, type, rows, bytes.data());
      std::vector<double> out;
      for (int64_t i = 0; i < rows.size() * columns; ++i) {
        out.push_back(number_at(type, bytes.data(), i));
        require(std::abs(out.back()) <= std::numeric_limits<float>::max(), ExitCode::kBadData, file->path(),
                ": dataset '", name, "': feature ", i % columns, " of row ", rows.begin + i / columns, " is ",
                out.back(), ", which is not finite in 32 bits");
      }
      return out;
    };
  }

  RowSource label_rows() const {
    RowSource out{path_, labels_, {header_.images[0]}, StoredType::kInt32, tokens_per_chunk(), {}, remedy()};
    out.read = [file = file_, name = labels_, type = label_type_](IndexRange rows, uint8_t* to) {
      std::vector<uint8_t> bytes(static_cast<size_t>(rows.size() * size_of(type)));
      file->read(name, type, rows, bytes.data());
      auto* labels = reinterpret_cast<int32_t*>(to);
      for (int64_t i = 0; i < rows.size(); ++i) {
        const double label = number_at(type, bytes.data(), i);
        require(label >= 0 && label < static_cast<double>(kMostClasses), ExitCode::kBadData, file->path(),
                ": dataset '", name, "': label ", rows.begin + i, " is ", label, ", not in [0, ", kMostClasses, ")");
        labels[i] = static_cast<int32_t>(label);
      }
    };
    return out;
  }

  std::string remedy() const { return str("restore the file, or remove ", hashes_path_, " if it was meant to change"); }

  // Calls use(bytes, rows) for each chunk, and returns their hashes.
  template <class Use>
  static std::vector<uint64_t> hash_chunks(const RowSource& source, Use use) {
    std::vector<uint64_t> out;
    std::vector<uint8_t> bytes;
    const int64_t count = source.shape[0], row = source.shape.numel() / count * size_of(source.type);
    for (int64_t at = 0; at < count; at += source.chunk_rows) {
      const IndexRange rows{at, std::min(count, at + source.chunk_rows)};
      bytes.resize(static_cast<size_t>(rows.size() * row));
      source.read(rows, bytes.data());
      out.push_back(hash64(bytes.data(), bytes.size()));
      use(bytes.data(), rows.size());
    }
    return out;
  }

  // Features that 32 bits hold as they are have the mean and deviation of what they are rounded to; the others are read
  // again, less their offsets.
  void hash_features() {
    DatasetHeader& h = header_;
    const auto columns = static_cast<size_t>(h.images[1]);
    std::vector<FeatureMoments> rounded(columns), exact(columns);
    Hasher128 first, second;
    RowSource source = sample_rows();
    source.read = [&, numbers = numbers()](IndexRange rows, uint8_t* to) {
      auto* values = reinterpret_cast<float*>(to);
      size_t i = 0;
      const std::vector<double> read = numbers(rows);
      first.update(read.data(), read.size() * sizeof read[0]);
      for (double value : read) {
        exact[i % columns].add(value);
        values[i] = static_cast<float>(value);
        rounded[i % columns].add(values[i]), ++i;
      }
    };
    h.hashes = hash_chunks(source, [](const uint8_t*, int64_t) {});
    for (size_t c = 0; c < columns; ++c) {
      exact[c].settle();
      const double offset = exact[c].offset(exact[c].mean, exact[c].scale());
      const FeatureMoments& m = offset != 0 ? exact[c] : rounded[c];
      h.mean.push_back(m.mean), h.stddev.push_back(m.scale()), h.offset.push_back(offset);
      if (m.beyond_doubles())
        warn_of_lost_bits(path_, str("dataset '", samples_, "', feature ", c), m.largest, m.scale());
    }
    if (std::all_of(h.offset.begin(), h.offset.end(), [](double o) { return o == 0; })) return h.offset.clear();
    source.read = [&, numbers = numbers()](IndexRange rows, uint8_t* to) {
      auto* values = reinterpret_cast<float*>(to);
      const std::vector<double> read = numbers(rows);
      second.update(read.data(), read.size() * sizeof read[0]);
      for (size_t i = 0; i < read.size(); ++i) values[i] = static_cast<float>(read[i] - h.offset[i % columns]);
    };
    h.hashes = hash_chunks(source, [](const uint8_t*, int64_t) {});
    require_same_pass(first.digest() == second.digest(), path_);
  }

  void make_hashes() {
    log_info(str(path_, ": is read once for the hashes of its chunks, which are kept in ", hashes_path_));
    DatasetHeader& h = header_;
    std::vector<bool> seen;
    h.label_hashes = hash_chunks(label_rows(), [&](const uint8_t* bytes, int64_t count) {
      const auto* labels = reinterpret_cast<const int32_t*>(bytes);
      h.classes = std::max<int64_t>(h.classes, 1 + *std::max_element(labels, labels + count));
      seen.resize(static_cast<size_t>(h.classes));
      for (int64_t i = 0; i < count; ++i) seen[static_cast<size_t>(labels[i])] = true;
    });
    warn_of_empty_classes(str(path_, ": dataset '", labels_, "'"), seen);
    const int64_t last = h.images.back();
    if (h.kind == DataKind::kImages) {
      ChannelSums sums(last);
      h.hashes = hash_chunks(sample_rows(), [&](const uint8_t* bytes, int64_t count) {
        sums.add(bytes, count * h.images[1] * h.images[2]);
      });
      sums.moments(h.mean, h.stddev);
    } else {
      hash_features();
    }
    h.identity = h.computed_identity();
    try {
      write_hashes_file();
    } catch (const Error& e) {
      if (e.code() != ExitCode::kOutputLocked && e.code() != ExitCode::kStorage) throw;
      log_warning(str(e.what(), "; the hashes are made again at each start, and only a checkpoint tells whether ",
                      path_, " has changed between them"));
    }
  }

  void write_hashes_file() const {
    const DatasetHeader& h = header_;
    std::error_code none;
    if (!other_folder_.empty()) std::filesystem::create_directories(other_folder_, none);
    PendingFile pending(hashes_path_, true);
    Hdf5File out = Hdf5File::create(pending.temporary());
    const auto write = [&](const std::string& name, const std::vector<uint64_t>& words) {
      out.write_all(name, StoredType::kUInt64, {static_cast<int64_t>(words.size())}, words.data());
    };
    out.set_attribute("", "format", std::string(kHashesFormat));
    out.set_attribute("", "version", kHashesVersion);
    out.set_attribute("", "identity", to_hex(h.identity));
    out.set_attribute("", "classes", h.classes);
    write("samples_hash", h.hashes);
    write("labels_hash", h.label_hashes);
    out.set_attribute("samples_hash", "mean", h.mean);
    out.set_attribute("samples_hash", "std", h.stddev);
    if (!h.offset.empty()) out.set_attribute("samples_hash", "offset", h.offset);
    out.close();
    pending.commit();
  }

  // False where there are none yet.
  bool read_hashes_file() {
    if (!is_file(hashes_path_)) return false;
    const Hdf5File in = Hdf5File::open(hashes_path_);
    const auto good = [&](bool holds) {
      require(holds, ExitCode::kBadData, hashes_path_, ": does not hold the hashes of ", path_,
              " as it is now: ", remedy());
    };
    good(in.has_attribute("", "format") && in.string_attribute("", "format") == kHashesFormat);
    require(in.int_attribute("", "version") == kHashesVersion, ExitCode::kBadData, hashes_path_,
            ": was written by another version of lockstep: remove it, and it is made anew");
    const auto read = [&](const std::string& name, const RowSource& of) {
      const Hdf5Info info = list_info(in, name);
      good(info.type == StoredType::kUInt64 && info.shape[0] == ceil_div(of.shape[0], of.chunk_rows));
      std::vector<uint64_t> words(static_cast<size_t>(info.shape[0]));
      in.read(name, StoredType::kUInt64, {0, info.shape[0]}, words.data());
      return words;
    };
    DatasetHeader& h = header_;
    h.hashes = read("samples_hash", sample_rows());
    h.label_hashes = read("labels_hash", label_rows());
    h.classes = count_attribute(in, "classes", h.images[0]);
    h.mean = in.doubles_attribute("samples_hash", "mean");
    h.stddev = in.doubles_attribute("samples_hash", "std");
    if (in.has_attribute("samples_hash", "offset")) h.offset = in.doubles_attribute("samples_hash", "offset");
    good(static_cast<int64_t>(h.mean.size()) == h.images.back() && h.mean.size() == h.stddev.size() &&
         (h.offset.empty() || (h.offset.size() == h.mean.size() && h.kind == DataKind::kTable)));
    h.identity = h.computed_identity();
    good(in.string_attribute("", "identity") == to_hex(h.identity));
    return true;
  }

  std::shared_ptr<const Hdf5File> file_;
  std::string path_, other_folder_, hashes_path_, samples_, labels_;
  StoredType type_ = StoredType::kUInt8, label_type_ = StoredType::kInt32;
  ImageLayout layout_;
  int64_t chunk_rows_ = 0;
  DatasetHeader header_;
};

}  // namespace

std::string hashes_path(const std::string& path, const std::string& samples, const std::string& labels,
                        const std::string& folder) {
  const std::string x = without_root(samples), y = without_root(labels), both = in_one_name(str(x, ".", y));
  const std::string begin = str(folder.empty() ? path : str(folder, "/", in_one_name(path)), ".", both);
  const std::string plain = begin + ".hashes";
  if ((x + y).find_first_of("-.") == std::string::npos) return plain;
  // Other names may be written alike; earlier versions did not tell them apart.
  const std::string exact = str(begin, ".", to_hex(hash128(str(x, "\n", y))).substr(0, 16), ".hashes");
  return is_file(exact) || !is_file(plain) || has_namesakes(path, both) ? exact : plain;
}

std::shared_ptr<DatasetFile> open_foreign_file(const std::string& path, const std::string& samples,
                                               const std::string& labels, int64_t memory_bytes,
                                               const std::string& other_folder, ImageLayout layout) {
  return ForeignFile(path, samples, labels, other_folder, layout).open(memory_bytes);
}

}  // namespace lockstep
