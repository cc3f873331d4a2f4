// Verification of a dataset file as a whole: unlike a reader, which stops at the first damaged chunk, it finds all of
// them. Plain functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "data/store/progress.h"

namespace lockstep {

struct DatasetCheck {
  std::string error;                 // the first; empty: the file is whole
  std::vector<std::string> damaged;  // "dataset 'tokens', chunk 2, rows [131072, 196608)"; empty where the file as such
                                     // cannot be read: its seal, structure or header
  int64_t chunks = 0, file_bytes = 0;
  Hash128 identity;

  bool whole() const { return error.empty(); }
};

// Checks the seal, the header, every chunk's hash, and ids, labels and the ends of records or images. Throws
// ExitCode::kMissingInput where there is no such file. Progress is in bytes of the file.
DatasetCheck verify_dataset(const std::string& path, const ProgressCallback& progress = {});
// One line: "a.h5: whole, 12 chunks, identity ...", or the error and the damaged chunks.
std::string to_text(const DatasetCheck& check, const std::string& path);
std::string to_json(const DatasetCheck& check, const std::string& path);

}  // namespace lockstep
