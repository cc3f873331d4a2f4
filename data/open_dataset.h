// From options to datasets: the training part and the validation part of one source.
// The caller owns them; they share the source.
#pragma once

#include <cstdint>
#include <memory>

#include "data/data_options.h"
#include "data/dataset.h"

namespace lockstep {

struct Datasets {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;  // nullptr where data.validation is 0
  DataPart measured = DataPart::kValidation;  // the part that `validation` is
};

// Reads and checks the file: ExitCode::kMissingInput, kBadData; kConfig where options do not fit the data.
// `seed` moves the windows of training text each epoch.
Datasets open_datasets(const DataOptions& options, uint64_t seed);

}  // namespace lockstep
