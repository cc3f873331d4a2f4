// SampleWriter: a dataset file that is made of samples of other dataset files. Owns its pending output; borrows the
// files that it copies from for the time of a call. Used by one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/base/partition.h"
#include "data/samples/dataset_file.h"
#include "data/store/partial_output.h"

namespace lockstep {

// What the new file holds beside its samples.
struct NewDataset {
  std::string path;
  bool replace = false;
  DatasetHeader header;  // as of described_as()
  // rows: SampleKind::rows_of; target_rows: likewise, of DatasetHeader::target_parts.
  int64_t samples = 0, rows = 0, target_rows = 0;
  // mean and std are measured, but of features whose mean is 0 and std 1, as those of categories; else they are the
  // header's.
  bool measure = false;
};
// What says of a dataset how its samples are to be read, without the samples.
DatasetHeader described_as(const DatasetHeader& header);

class SampleWriter {
 public:
  virtual ~SampleWriter() = default;
  // Appends samples of a file, as sample_count() counts them, with their targets. `labels`: the new number of each of
  // the file's labels, not of masks; empty: they stay.
  virtual void append(const std::shared_ptr<const DatasetFile>& file, IndexRange samples,
                      const std::vector<int32_t>& labels) = 0;
  // The file is complete, under its temporary name. Throws ExitCode::kBadData for images of which none has a box.
  virtual void close() = 0;
  virtual PartialOutput& output() = 0;  // what is committed then
};
std::unique_ptr<SampleWriter> make_sample_writer(NewDataset dataset);

constexpr int64_t kCopyMemory = 16 << 20;   // bytes of a file that is copied from, in memory
constexpr int64_t kTokensAtOnce = 1 << 18;  // of one long sequence
// Appends some at a time and calls done(end of those that are copied) after each time.
void copy_samples(const std::shared_ptr<const DatasetFile>& file, IndexRange samples,
                  const std::vector<int32_t>& labels, SampleWriter& to, const std::function<void(int64_t end)>& done);

}  // namespace lockstep
