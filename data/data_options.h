// The settings of the data: which dataset, how it is cut, how it is loaded. Section `data` of a configuration.
// A plain struct.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/field.h"

namespace lockstep {

// A part of the data, for measuring a model on.
enum class DataPart : uint8_t { kValidation, kTrain, kAll };

struct DataOptions {
  std::string name = "hdf5";  // data.name, a choice
  std::string path = {};
  int64_t context = 0;
  double validation = 0.1;
  bool shuffle = true;
  std::vector<int64_t> ignore_tokens = {};
  int64_t threads = 1;
  int64_t prefetch = 2;
  int64_t memory = 1024;  // MiB
  struct Synthetic {
    int64_t tokens = 1 << 20;
    int64_t vocabulary = 256;
    int64_t images = 10000;
    int64_t height = 28, width = 28, channels = 1;
    int64_t classes = 10;
  } synthetic = {};
  // No key: of commands that only measure. Both datasets are then this part, whole and in order, however short.
  std::optional<DataPart> measured = {};
};

// Those that every source of data has, beside the name; a source adds what it reads (DataSource::options).
std::vector<Field> fields(DataOptions& options);

}  // namespace lockstep
