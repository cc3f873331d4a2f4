// safetensors: files of named tensors, as the Python library of that name reads and writes them: 8 bytes that say how
// long the header is, the header (JSON: type, shape and place of each tensor), then the tensors' bytes, little-endian
// in C order. Large models are several files beside an index. The reader is stricter than the format's own: see below.
// WeightFiles holds the headers in memory and one open file; a reading of elements touches the bytes of these alone.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/base/partition.h"
#include "core/base/shape.h"
#include "core/io/coded_weights.h"
#include "core/io/stored_weight.h"

namespace lockstep {

constexpr const char* kWeightsFile = "model.safetensors";
constexpr const char* kWeightsIndex = "model.safetensors.index.json";

class WeightFiles {
 public:
  // `path`: a file, or a folder with kWeightsFile or kWeightsIndex (with both, the file is read, as transformers does,
  // and a warning names the index); a file may also be one of llm.c (core/io/llmc_weights.h) or a .npz of NumPy
  // (core/io/numpy_file.h). Reads all headers. Throws
  // ExitCode::kMissingInput for what is not there and kBadData, naming file and tensor, for what the format forbids and
  // for: names that occur twice, bytes that belong to no tensor or to several, sizes that overflow or do not follow
  // from type and shape, more than Shape::kMaxRank dimensions, an index that names files elsewhere or disagrees with
  // what the files hold.
  static WeightFiles open(const std::string& path);

  const std::vector<StoredWeight>& weights() const { return weights_; }  // by file, then by place
  const StoredWeight* find(std::string_view name) const;                 // null where there is none
  const std::string& path() const { return path_; }                      // as given to open()
  const std::string& file_of(const StoredWeight& w) const { return files_[w.file]; }

  // Elements [range) of the flattened tensor, in fp32. Throws kBadData for types other than F32, F16, BF16, F64, NF4
  // and INT8.
  void read(const StoredWeight& weight, IndexRange range, float* out) const;
  // Throws what read() would throw for the tensor's type.
  void require_readable(const StoredWeight& weight) const;

 private:
  void add_file(const std::string& path);
  void add_index(const std::string& folder);
  void join_codes();
  void read_bytes(const StoredWeight& weight, int64_t offset, void* to, int64_t bytes) const;
  ReadBytes bytes_reader() const;

  struct OpenFile;
  struct TextHash {
    using is_transparent = void;
    size_t operator()(std::string_view s) const { return std::hash<std::string_view>()(s); }
  };
  std::string path_;
  std::vector<std::string> files_;
  std::vector<StoredWeight> weights_;
  std::unordered_map<std::string, size_t, TextHash, std::equal_to<>> by_name_;
  std::map<std::string, CodedWeight, std::less<>> coded_;  // those in codes, by name
  mutable std::string coded_last_;                         // the one of these that was read last
  mutable std::shared_ptr<OpenFile> open_;                 // the file read last
};

// A tensor to be written.
struct WeightToWrite {
  std::string name;
  Shape shape;
  std::string type = "F32";  // BF16 or I64
};

// Writes one file: all tensors are named first, then their elements come in that order. The file appears when it is
// complete, by PendingFile (core/io/pending_file.h), whose errors it throws.
class WeightWriter {
 public:
  WeightWriter(const std::string& path, std::vector<WeightToWrite> weights,
               const std::vector<std::pair<std::string, std::string>>& metadata = {{"format", "pt"}});
  ~WeightWriter();
  WeightWriter(WeightWriter&&) noexcept;

  // The next elements: of one tensor after another, in as many pieces as the caller likes. Of BF16 they are rounded to
  // the nearest, ties to even.
  void write(const float* values, int64_t count);
  void write(const int64_t* values, int64_t count);
  void commit();  // checks that all elements came

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// How the tensors spread over files of at most `bytes_a_file` bytes (a larger tensor is alone in its file): the numbers
// of the tensors of each, in order.
std::vector<std::vector<size_t>> files_for(const std::vector<WeightToWrite>& weights, int64_t bytes_a_file);
std::string weights_file_name(size_t index, size_t count);  // "model-00001-of-00003.safetensors"; of one: kWeightsFile
// kWeightsIndex of those files, as text.
std::string weights_index(const std::vector<WeightToWrite>& weights, const std::vector<std::vector<size_t>>& files);

}  // namespace lockstep
