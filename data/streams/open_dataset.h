// Opens the training and the validation dataset that the options of section `data` describe. The caller owns both; they
// share their source.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/choice.h"
#include "data/samples/data_options.h"
#include "data/samples/dataset.h"
#include "data/samples/schema.h"

namespace lockstep {

struct Datasets {
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> validation;  // nullptr if data.validation is 0
  DataPart measured = DataPart::kValidation;  // the part that `validation` is
  // Of one dataset file: the samples that are used, and those that it holds, which are more where it has grown since
  // the run began. 0: several files, or none.
  int64_t samples = 0, stored_samples = 0;
  // What other data must be like to be measured by what was trained on this; null where the source does not say.
  std::shared_ptr<const LikeData> like_this;
};

// A source of samples; data.name chooses one.
class DataSource {
 public:
  virtual ~DataSource() = default;
  // The options that this source reads in addition to fields(common); they are members of `common` or of the source.
  virtual std::vector<Field> options(DataOptions& common) = 0;
  // Throws ExitCode::kMissingInput or kBadData for files, kConfig if the options do not fit the data. `seed` determines
  // the offset of the training windows of text in each epoch.
  virtual Datasets open(const DataOptions& common, uint64_t seed) const = 0;
};

// hdf5, a file made by `lockstep data import`; synthetic_tokens, synthetic_images and
// synthetic_shapes, generated for benchmarks and trials.
std::vector<Choice<DataSource>> builtin_data();
// Opens the built-in source that options.name names.
Datasets open_datasets(const DataOptions& options, uint64_t seed);

// The files that a key of these options names, by `pattern`: there, or else in the first of o.folders that has some, by
// the same path below it or, for what is no pattern, by the name alone. Throws as files_matching().
std::vector<std::string> files_of(const std::string& pattern, const DataOptions& o);
// The files that a pattern such as shards/*.h5 names, sorted; what is none is itself. Throws ExitCode::kMissingInput
// where there is none.
std::vector<std::string> files_matching(const std::string& pattern);

}  // namespace lockstep
