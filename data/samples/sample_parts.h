// How the samples of a source become datasets: what it is split by, and the dataset of a part. Plain values and
// functions; they throw ExitCode::kConfig where the options do not fit the data.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/partition.h"
#include "data/samples/data_options.h"
#include "data/samples/dataset.h"

namespace lockstep {

struct DatasetFile;
class TokenSource;

// How the samples of a part come: as they are, in order, or for training.
struct PartUse {
  bool training = false;
  uint64_t seed = 0;
};

struct SampleParts {
  int64_t rows = 0;  // what the data is split by
  std::string unit;  // in messages: "records"
  std::function<std::shared_ptr<const Dataset>(IndexRange rows, PartUse use)> make;
};

// Text: windows of the tokens, or records, as data.packing says.
SampleParts text_parts(const std::shared_ptr<const TokenSource>& source, const DataOptions& options);
// Records with a label each.
SampleParts labelled_text_parts(const std::shared_ptr<const DatasetFile>& file, const DataOptions& options);
// So many samples of what is no text.
SampleParts plain_parts(int64_t count, const DataOptions& options,
                        std::function<std::shared_ptr<const Dataset>(IndexRange rows, PartUse use)> make);
// The spec of these images or rows, with an input of this shape, and targets and weights as the file says.
DataSpec spec_of(const DatasetFile& file, IndexRange rows, TensorSpec input, const std::string& unit);
// The weight of a sample of the file, into its last tensor, where weights are among its tensors.
void write_weight(const DatasetFile& file, int64_t row, SampleMemory sample);
// How many of these rows have each label; empty where they have none, or more than one.
std::vector<int64_t> class_counts(const DatasetFile& file, IndexRange rows);

}  // namespace lockstep
