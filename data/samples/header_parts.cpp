#include "data/samples/header_parts.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/images/codecs/image_codec.h"
#include "data/samples/channel_sums.h"
#include "data/samples/sample_target.h"

namespace lockstep {

namespace {

bool are_all_one(const std::vector<float>& weights) {
  return std::all_of(weights.begin(), weights.end(), [](float weight) { return weight == 1; });
}

}  // namespace

Hdf5Info list_info(const Hdf5File& file, const std::string& name) {
  const Hdf5Info info = file.info(name);
  require(info.shape.rank() == 1, ExitCode::kBadData, file.path(), ": dataset '", name, "' has shape ", info.shape,
          "; expected a list");
  require(!info.deflated, ExitCode::kBadData, file.path(), ": dataset '", name,
          "' is compressed (deflate), which is allowed only for tokens and images");
  return info;
}

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

int64_t count_attribute(const Hdf5File& file, const std::string& key, int64_t rows) {
  const int64_t value = file.int_attribute("", key), most = std::min(std::max(kMostClasses, rows), int64_t{1} << 31);
  require(value > 0 && value <= most, ExitCode::kBadData, file.path(), ": attribute '", key, "' is ", value,
          "; expected a number in [1, ", most, "]");
  return value;
}

void require_list(const Hdf5File& file, const std::string& name, StoredType type, int64_t images,
                  const std::string& what) {
  const Hdf5Info info = list_info(file, name);
  require(info.type == type, ExitCode::kBadData, file.path(), ": dataset '", name, "' holds ", info.type, " of shape ",
          info.shape, "; expected a list of ", type);
  require(info.shape[0] == images, ExitCode::kBadData, file.path(), ": there are ", images, " ", what, ", but ",
          info.shape[0], " ", name);
}

void write_weights(Hdf5File& file, const std::vector<float>& weights, DatasetHeader& header) {
  if (!are_all_one(weights))
    header.weight_hashes = write_list(file, std::string(kSampleWeights), StoredType::kFloat32, weights);
}

void write_hashes(Hdf5File& file, const std::string& of, const std::vector<uint64_t>& hashes) {
  file.write_all(of + "_hash", StoredType::kUInt64, {static_cast<int64_t>(hashes.size())}, hashes.data());
}

void warn_of_lost_bits(const std::string& path, const std::string& what, double largest, double deviation) {
  const double step = std::nextafter(largest, 2 * largest) - largest;
  log_warning(str(path, ": ", what, ": numbers up to ", largest, " are read in 64 bits, which tell them apart by ",
                  step, ", ", step / deviation, " standard deviations; subtract a constant from them first"));
}

void warn_of_old_numbers(const std::string& path, const std::string& what, double centre, double deviation) {
  if (!FeatureMoments::loses_bits(std::abs(centre), deviation)) return;
  const auto stored = static_cast<float>(std::abs(centre));
  const double step = std::nextafter(stored, 2 * stored) - stored;
  log_warning(str(path, ": ", what, " has a mean of ", centre, " and is stored in 32 bits, whose resolution there is ",
                  step, ", which is ", step / deviation,
                  " standard deviations; import the data again, or, where it is read in place, remove its file of "
                  "hashes: the mean is subtracted before numbers are stored now"));
}

bool normalises(double mean, double stddev) {
  constexpr double kLargest = std::numeric_limits<float>::max();
  return std::isfinite(mean) && std::isfinite(stddev) && stddev > 0 && std::abs((0.0 - mean) / stddev) <= kLargest &&
         std::abs((1.0 - mean) / stddev) <= kLargest;
}

std::string read_text(const Hdf5File& file, const std::string& name) {
  constexpr int64_t kMostTextBytes = 16 << 20;
  const Hdf5Info info = list_info(file, name);
  require(info.type == StoredType::kUInt8 && info.shape[0] <= kMostTextBytes, ExitCode::kBadData, file.path(),
          ": dataset '", name, "' holds ", info.type, " of shape ", info.shape, "; expected at most ", kMostTextBytes,
          " bytes");
  std::string text(static_cast<size_t>(info.shape[0]), '\0');
  file.read(name, StoredType::kUInt8, {0, info.shape[0]}, text.data());
  return text;
}

void write_text(Hdf5File& file, const std::string& name, const std::string& text) {
  if (!text.empty()) file.write_all(name, StoredType::kUInt8, {static_cast<int64_t>(text.size())}, text.data());
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

void read_classes(const Hdf5File& file, int64_t samples, const std::string& what, DatasetHeader& h) {
  require_list(file, "labels", StoredType::kInt32, samples, what);
  h.classes = count_attribute(file, "classes", samples);
  h.label_hashes = read_hashes(file, "labels");
  h.class_names = read_class_names(file, h.classes);
}

void write_classes(Hdf5File& file, const DatasetHeader& h) {
  const SampleTarget& target = sample_target(h.target);
  if (target.has_classes()) file.set_attribute("", "classes", h.classes);
  write_hashes(file, target.words().dataset, h.label_hashes);
  std::string names;
  for (const std::string& name : h.class_names) names += name + "\n";
  write_text(file, "class_names", names);
}

std::vector<int32_t> read_labels(RowSource source, const DatasetHeader& header, const std::string& sample) {
  auto check_labels = [path = source.path, limit = header.classes, sample](IndexRange rows, const uint8_t* bytes) {
    const int32_t* labels = reinterpret_cast<const int32_t*>(bytes);
    for (int64_t i = 0; i < rows.size(); ++i)
      require(labels[i] >= 0 && labels[i] < limit, ExitCode::kBadData, path, ": label of ", sample, " ", rows.begin + i,
              " is ", labels[i], ", not in [0, ", limit, "); import the ", sample, "s again");
  };
  return read_list<int32_t>(std::move(source), header.label_hashes, check_labels);
}

void read_weights_header(const Hdf5File& file, int64_t count, const std::string& samples, DatasetHeader& h) {
  const std::string name(kSampleWeights);
  if (!file.has(name)) return;
  require_list(file, name, StoredType::kFloat32, count, samples);
  h.weight_hashes = read_hashes(file, name);
}

void write_weights_header(Hdf5File& file, const DatasetHeader& h) {
  if (!h.weight_hashes.empty()) write_hashes(file, std::string(kSampleWeights), h.weight_hashes);
}

void open_weights(const std::shared_ptr<const Hdf5File>& file, const std::string& sample, DatasetFile& out) {
  if (out.header.weight_hashes.empty()) return;
  auto check_weights = [path = file->path(), sample](IndexRange rows, const uint8_t* bytes) {
    const auto* weights = reinterpret_cast<const float*>(bytes);
    for (int64_t i = 0; i < rows.size(); ++i)
      require(std::isfinite(weights[i]) && weights[i] >= 0, ExitCode::kBadData, path, ": the weight of ", sample, " ",
              rows.begin + i, " is ", weights[i], ", not a finite number of at least 0; import it again");
  };
  out.weights =
      read_list<float>(stored_rows(file, std::string(kSampleWeights)), out.header.weight_hashes, check_weights);
}

void cut_weights(DatasetFile& file, int64_t samples) {
  if (file.weights.empty()) return;
  file.weights.resize(static_cast<size_t>(samples));
  if (are_all_one(file.weights)) file.weights.clear();  // then nobody stores them
  file.header.weight_hashes = hashes_of_list(file.weights);
}

std::vector<int64_t> read_ends(std::shared_ptr<const Hdf5File> file, const std::string& name,
                               const std::vector<uint64_t>& hashes, int64_t bytes, const std::string& sample) {
  const std::string path = file->path();
  auto ends = read_list<int64_t>(stored_rows(std::move(file), name), hashes, [](IndexRange, const uint8_t*) {});
  int64_t begin = 0;
  for (size_t i = 0; i < ends.size(); ++i) {
    require(ends[i] > begin && ends[i] <= bytes && ends[i] - begin <= kMostImageBytes, ExitCode::kBadData, path, ": ",
            sample, " ", i, " has bytes [", begin, ", ", ends[i], ") of ", bytes, "; import the images again");
    begin = ends[i];
  }
  require(begin == bytes, ExitCode::kBadData, path, ": its ", sample, "s end at byte ", begin, " of ", bytes,
          "; import the images again");
  return ends;
}

std::string bytes_in(const StoredRows& rows, IndexRange range) {
  std::string bytes;
  rows.visit(range, [&](IndexRange piece, const uint8_t* from) {
    bytes.append(reinterpret_cast<const char*>(from), static_cast<size_t>(piece.size()));
  });
  return bytes;
}

std::vector<uint64_t> hashes_of_first(const StoredRows& rows, const std::vector<uint64_t>& stored, int64_t count,
                                      int64_t chunk_rows) {
  chunk_rows = std::min(chunk_rows, count);
  std::vector<uint64_t> out;
  for (int64_t begin = 0; begin < count; begin += chunk_rows) {
    const IndexRange chunk{begin, std::min(count, begin + chunk_rows)};
    if (rows.chunk_rows() == chunk_rows && chunk.size() == chunk_rows) {
      out.push_back(stored[out.size()]);
      continue;
    }
    std::vector<uint8_t> bytes;
    rows.visit(chunk, [&](IndexRange piece, const uint8_t* from) {
      bytes.insert(bytes.end(), from, from + piece.size() * rows.row_bytes());
    });
    out.push_back(hash64(bytes.data(), bytes.size()));
  }
  return out;
}

void cut_labels(DatasetFile& file, int64_t samples) {
  file.labels.resize(static_cast<size_t>(samples));
  file.header.label_hashes = hashes_of_list(file.labels);
}

void cut_ends(RaggedEnds& ends, int64_t samples) {
  ends.ends.resize(static_cast<size_t>(samples));
  ends.hashes = hashes_of_list(ends.ends);
}

int32_t label_of(const DatasetFile& file, int64_t sample, const std::vector<int32_t>& numbers) {
  const int32_t label = file.labels[static_cast<size_t>(sample)];
  return numbers.empty() ? label : numbers[static_cast<size_t>(label)];
}

}  // namespace lockstep
