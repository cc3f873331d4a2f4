// Importing: text and IDX images into a dataset file; and inspecting one. The door to zlib (import_idx.cpp).
// Plain functions; the output appears under its name only when it is whole, an earlier file stays until then.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/base/shape.h"
#include "data/dataset_file.h"
#include "data/vocabulary.h"

namespace lockstep {

// Called now and then with the work done and its total, in the same unit.
using ProgressCallback = std::function<void(int64_t done, int64_t total)>;

struct ImportOptions {
  bool force = false;  // replace an existing output
  ProgressCallback progress = {};
  // import_text: tokens are those of this vocabulary, of which the text may use a part; none: the vocabulary is made
  // from the text. Its level is the one that is imported at.
  std::shared_ptr<const Vocabulary> vocabulary = {};
};

// Errors of all: ExitCode::kMissingInput, kBadData (file and byte or index named), kOutputLocked (output is there),
// kStorage.

// Several inputs are joined in order. Character level wants UTF-8 and makes the vocabulary of what it finds, or takes
// that of the options: then a character that is not in it is kBadData, with file, byte and character.
void import_text(const std::vector<std::string>& inputs, const std::string& output, TextLevel level,
                 const ImportOptions& options = {});

// IDX files, gzip or plain: unsigned bytes [n, height, width] or [n, height, width, channels], and labels [n].
// Labels must lie in [0, classes); 0 classes means the largest label plus one.
void import_idx(const std::string& images, const std::string& labels, const std::string& output, int64_t classes = 0,
                const ImportOptions& options = {});

// The characters that a UTF-8 text file uses, as import_text makes its vocabulary; and the vocabulary of a dataset file
// (null at level "ids"; kBadData where it holds images).
std::unique_ptr<Vocabulary> vocabulary_of_text(const std::string& path);
std::unique_ptr<Vocabulary> vocabulary_of_dataset(const std::string& path);
// Whether a file has HDF5's signature where HDF5 looks for it. Throws kMissingInput where it cannot be opened.
bool is_hdf5_file(const std::string& path);

struct DatasetReport {
  DataKind kind = DataKind::kTokens;
  std::string level;    // "byte", "char", "ids"; empty for images
  int64_t count = 0;    // tokens or images
  int64_t classes = 0;  // vocabulary size, or number of labels
  Shape image_shape;    // [height, width, channels]
  std::vector<double> mean, stddev;
  std::vector<int64_t> per_class;  // images of each label
  std::string characters;          // of a vocabulary at character level, UTF-8
  int64_t chunks = 0;              // all of them read and found whole
  int64_t file_bytes = 0;
  Hash128 identity;
};

// Reads and checks everything; throws like opening a dataset does.
DatasetReport inspect_dataset(const std::string& path, const ProgressCallback& progress = {});
std::string to_text(const DatasetReport& report);  // several lines
std::string to_json(const DatasetReport& report);  // one JSON object, in a line

}  // namespace lockstep
