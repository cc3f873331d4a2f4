// New dataset files from those that there are: one is split, several are merged. Samples are whole and keep their
// order. Memory is bounded, but for a few bytes a sample. Outputs appear when all of them are complete. Plain
// functions; they throw ExitCode::kMissingInput, kBadData, kOutputLocked (an output exists), kStorage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/import/import.h"

namespace lockstep {

struct SplitPart {
  std::string path;
  double share = 0;     // of the samples; those of all parts add up to 1
  int64_t samples = 0;  // set by split_dataset
};
struct SplitOptions {
  uint64_t seed = 0;
  bool by_label = false;  // each label has its share in each part, to the sample
  bool force = false;     // replace existing outputs
  ProgressCallback progress = {};
};
// Which samples (records, images, rows) are in which part is a function of their number, the shares and the seed; with
// by_label of the labels, too. Text without records is cut into consecutive parts. Parts have the vocabulary, the
// classes, mean and std of the whole: their samples are the same to the bit.
void split_dataset(const std::string& input, std::vector<SplitPart>& parts, const SplitOptions& options);

struct MergeOptions {
  // mean and std are those of the first input, so that its samples keep their values to the bit; else of all samples.
  bool keep_normalization = false;
  bool force = false;
  ProgressCallback progress = {};
};
// The samples of all inputs, one after another. Kind, vocabulary and shape must be the same. Where labels have names,
// those of the first input count: each later name must be among them, in whatever order. Targets must be of one kind.
void merge_datasets(const std::vector<std::string>& inputs, const std::string& output, const MergeOptions& options);

}  // namespace lockstep
