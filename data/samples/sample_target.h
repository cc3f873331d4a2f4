// SampleTarget: all that sets apart what the outputs for images and rows of tables are compared with, such as a label,
// a mask or boxes: its part of the header and of the identity, how it is opened, copied, inspected, shown and read.
// Each is one file in data/samples/targets, and sample_target.cpp lists them. Objects without state, which any thread
// may use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/io/json.h"
#include "data/images/resize.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/sample_writer.h"
#include "data/samples/show.h"

namespace lockstep {

class SchemaFit;

// The targets of a file that is made of samples of other files.
class TargetCopy {
 public:
  virtual ~TargetCopy() = default;
  // `labels`: as of SampleWriter::append.
  virtual void append(const DatasetFile& file, IndexRange samples, const std::vector<int32_t>& labels) = 0;
  // With `measures`, numbers have a mean and deviation of their own.
  virtual void close(Hdf5File& file, bool measures, DatasetHeader& header) = 0;
};

class SampleTarget {
 public:
  struct Words {
    std::string name;          // in schemas: "numbers"
    std::string dataset;       // that holds them: "targets"
    std::string ends;          // the dataset of their ends, where each sample may have several; empty: none has
    std::string content;       // for messages: "numbers to predict"
    std::string counted = {};  // what reports count by class: "pixels"; empty: samples
    bool needs_pixels = false;
  };

  explicit SampleTarget(Words words) : words_(std::move(words)) {}
  virtual ~SampleTarget() = default;
  const Words& words() const { return words_; }

  // The header. `samples`: the kind's word for them.
  virtual void read_header(const Hdf5File& file, const std::string& samples, DatasetHeader& header) const = 0;
  virtual void write_attributes(Hdf5File& file, const DatasetHeader& header) const {}
  virtual bool has_classes() const { return true; }
  // Its part of the identity: in the line of text, and behind all hashes.
  virtual std::string identity_text(const DatasetHeader& header) const = 0;
  virtual void hash(const DatasetHeader& header, Hasher128& hasher) const {}

  // Of so many bytes that a file's rows may take, those that the targets take.
  virtual int64_t memory_share(const DatasetHeader& header, int64_t memory_bytes) const { return 0; }
  // Throws ExitCode::kBadData naming the file. `sample`: the kind's word for one.
  virtual void open(const std::shared_ptr<const Hdf5File>& file, int64_t memory_bytes, const std::string& sample,
                    DatasetFile& out) const = 0;
  // Keeps those of the first samples.
  virtual void cut(DatasetFile& file, int64_t samples) const = 0;
  virtual std::unique_ptr<TargetCopy> copy(Hdf5File& file, const NewDataset& dataset) const = 0;
  // Why targets of `other` cannot follow those of `first`; empty: they can.
  virtual std::string difference(const DatasetHeader& other, const DatasetHeader& first) const { return {}; }
  virtual void fit(SchemaFit& fit) const = 0;

  // In a batch: the tensor that a sample has of them, if any, and its values.
  virtual void add_to(DataSpec& spec, const TensorSpec& input) const {}
  virtual void write(const DatasetFile& file, int64_t row, void* to) const {}
  // The number of which write() writes the fp32; nothing of other targets.
  virtual std::optional<double> number(const DatasetFile& file, int64_t row) const { return {}; }

  // What a report has of them, and says of them: in lines, and in members before and behind those about duplicates.
  virtual void inspect(const DatasetFile& file, DatasetReport& report) const {}
  virtual double compared(const DatasetFile& file, int64_t row) const { return 0; }  // of equal samples
  virtual std::string text(const DatasetReport& report, const std::string& samples) const;
  virtual JsonObject counts(const DatasetReport& report) const { return {}; }
  virtual JsonObject range(const DatasetReport& report) const { return {}; }
  // Puts an image's target into `out`, and draws it on the image; then what is printed of it.
  virtual void show(const DatasetFile& file, int64_t index, ByteImage& image, ShownImage& out) const = 0;
  virtual std::string shown(const ShownImage& image, JsonObject& line) const = 0;

 private:
  Words words_;
};

const SampleTarget& sample_target(TargetKind kind);
const std::vector<const SampleTarget*>& sample_targets();  // in the order of TargetKind
size_t target_of_name(const std::string& name);            // in schemas; none: sample_targets().size()

}  // namespace lockstep
