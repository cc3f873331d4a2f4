// SampleKind: all that sets apart one kind of samples in dataset files, such as text, images or rows of a table: its
// part of the header and of the identity, how its files are opened, copied, inspected and shown, and how samples are
// made of them. Each kind is one file in data/samples/kinds, and sample_kind.cpp lists them. Objects without state,
// which any thread may use.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/io/json.h"
#include "data/samples/dataset_file.h"
#include "data/samples/inspect.h"
#include "data/samples/sample_parts.h"
#include "data/samples/sample_writer.h"
#include "data/store/progress.h"

namespace lockstep {

class SchemaFit;

// A sample as `lockstep data show` prints it.
struct ShownSample {
  std::string text;                // lines
  JsonObject json;                 // the same
  std::optional<std::string> png;  // the bytes of a PNG file, of kinds that are pictures
};

// A dataset of a file that is stored beside its rows, and the hashes of its chunks; none: it is not there.
struct StoredList {
  std::string name;
  const std::vector<uint64_t>* hashes;
};

class SampleKind {
 public:
  struct Words {
    std::string name;     // in schemas and reports: "table"
    std::string rows;     // the dataset that holds the rows: "features"
    std::string sample;   // "row"
    std::string samples;  // "rows"
    std::string content;  // what a file holds: "a table"
    std::string value;    // what mean and deviation belong to: "feature"; empty: samples are not normalised
    std::string unlabelled = "has no label for each sample";  // where labels are asked for
  };

  explicit SampleKind(Words words) : words_(std::move(words)) {}
  virtual ~SampleKind() = default;
  const Words& words() const { return words_; }
  bool normalised() const { return !words_.value.empty(); }
  virtual bool has_pixels() const { return false; }  // so that there may be masks and boxes, and data.image.mean

  // The header. What the attribute `kind` may say, and says of a file; `stored` is one of these.
  virtual std::vector<std::string> stored_names() const { return {words_.name}; }
  virtual std::string stored_name(const DatasetHeader& header) const { return words_.name; }
  virtual void read_header(const Hdf5File& file, const std::string& stored, DatasetHeader& header) const = 0;
  virtual void write_header(Hdf5File& file, const DatasetHeader& header) const = 0;
  virtual void hash(const DatasetHeader& header, Hasher128& hasher) const = 0;  // the kind's identity
  virtual std::vector<StoredList> lists(const DatasetHeader& header) const = 0;
  virtual int64_t samples(const DatasetHeader& header) const = 0;
  virtual int64_t rows_per_chunk(const DatasetHeader& header) const = 0;
  virtual IndexRange rows_of(const DatasetHeader& header, IndexRange samples) const { return samples; }

  // Opens what a file of this header holds. Throws ExitCode::kBadData naming the file.
  virtual void open(const std::shared_ptr<const Hdf5File>& file, int64_t memory_bytes, DatasetFile& out) const = 0;
  // Makes it a file of its first samples: all but the identity.
  virtual void cut(DatasetFile& file, int64_t samples) const = 0;
  virtual std::unique_ptr<SampleWriter> writer(NewDataset dataset) const = 0;
  // Whether samples are places of one long sequence: a split cuts it, instead of dealing samples to the parts.
  virtual bool is_one_sequence(const DatasetFile& file) const { return false; }
  // Why samples of `other` cannot follow those of `first` in one file; empty: they can.
  virtual std::string difference(const DatasetHeader& other, const DatasetHeader& first) const = 0;
  // Gives samples the meaning that they have in other data of this kind (data/samples/schema.h). `file`: whose rows
  // stay as they are stored; null for an import.
  virtual void fit(SchemaFit& fit, DatasetFile* file) const = 0;

  // Reads all rows, and fills what the kind has in a report; then what the report says of it.
  virtual void inspect(const DatasetFile& file, DatasetReport& report, const ProgressCallback& progress) const = 0;
  virtual std::string text(const DatasetReport& report) const = 0;
  virtual JsonObject json(const DatasetReport& report) const = 0;
  // Throws ExitCode::kUsage where there is no such sample, kBadData where the kind is not shown.
  virtual ShownSample show(const std::shared_ptr<const DatasetFile>& file, int64_t index) const;

  // How samples of a batch are made of it.
  virtual SampleParts parts(const std::shared_ptr<const DatasetFile>& file, const DataOptions& options) const = 0;

 private:
  Words words_;
};

const SampleKind& sample_kind(DataKind kind);
// All of them, in the order of DataKind.
const std::vector<const SampleKind*>& sample_kinds();
// The kind whose schemas have this name, or whose files have this attribute; none: sample_kinds().size().
size_t kind_of_name(const std::string& name);
size_t kind_of_stored(const std::string& stored);

}  // namespace lockstep
