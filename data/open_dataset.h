// From options to datasets: the training part and the validation part of one source.
// The caller owns them; they share the source.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/choice.h"
#include "data/data_options.h"
#include "data/dataset.h"

namespace lockstep {

struct Datasets {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;  // nullptr where data.validation is 0
  DataPart measured = DataPart::kValidation;  // the part that `validation` is
};

// Where samples come from: a choice of data.name.
class DataSource {
 public:
  virtual ~DataSource() = default;
  // The options that it reads beside fields(common): of `common`, or its own.
  virtual std::vector<Field> options(DataOptions& common) = 0;
  // Throws ExitCode::kMissingInput or kBadData for files, kConfig where options do not fit the data. `seed` moves the
  // windows of training text each epoch.
  virtual Datasets open(const DataOptions& common, uint64_t seed) const = 0;
};

// hdf5, a file made by `lockstep data import`; synthetic_tokens and synthetic_images, made up for benchmarks.
std::vector<Choice<DataSource>> builtin_data();
// The built-in source that options.name says.
Datasets open_datasets(const DataOptions& options, uint64_t seed);

}  // namespace lockstep
