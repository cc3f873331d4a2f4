// Importing: text and IDX images into a dataset file; and inspecting one. The door to zlib (import_idx.cpp).
// Plain functions; the output appears under its name only when it is whole, an earlier file stays until then.
// Knows nothing of the command line.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/base/shape.h"
#include "data/dataset.h"
#include "data/vocabulary.h"

namespace lockstep {

// Called now and then with the work done and its total, in the same unit.
using ProgressCallback = std::function<void(int64_t done, int64_t total)>;

struct ImportOptions {
  bool force = false;  // replace an existing output
  ProgressCallback progress = {};
};

// Errors of all: ExitCode::kMissingInput, kBadData (file and byte or index named), kOutputLocked (output is there),
// kStorage.

// Several inputs are joined in order. Character level wants UTF-8 and makes the vocabulary of what it finds.
void import_text(const std::vector<std::string>& inputs, const std::string& output, TextLevel level,
                 const ImportOptions& options = {});

// IDX files, gzip or plain: unsigned bytes [n, height, width] or [n, height, width, channels], and labels [n].
// Labels must lie in [0, classes); 0 classes means the largest label plus one.
void import_idx(const std::string& images, const std::string& labels, const std::string& output, int64_t classes = 0,
                const ImportOptions& options = {});

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

}  // namespace lockstep
