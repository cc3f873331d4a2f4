// LabelledKind: what images and rows of tables have in common: a row each, mean and deviation of its values, and a
// target each (data/samples/sample_target.h).
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/samples/header_parts.h"
#include "data/samples/sample_kind.h"
#include "data/samples/sample_target.h"

namespace lockstep {

class LabelledKind : public SampleKind {
 public:
  using SampleKind::SampleKind;
  void read_header(const Hdf5File& file, const std::string& stored, DatasetHeader& header) const final;
  void write_header(Hdf5File& file, const DatasetHeader& header) const final;
  void hash(const DatasetHeader& header, Hasher128& hasher) const final;
  std::vector<StoredList> lists(const DatasetHeader& header) const final;
  int64_t samples(const DatasetHeader& header) const final { return header.images[0]; }
  IndexRange rows_of(const DatasetHeader& header, IndexRange samples) const final { return header.files.of(samples); }
  void open(const std::shared_ptr<const Hdf5File>& file, int64_t memory_bytes, DatasetFile& out) const final;
  void cut(DatasetFile& file, int64_t samples) const final;
  std::string difference(const DatasetHeader& other, const DatasetHeader& first) const final;
  void inspect(const DatasetFile& file, DatasetReport& report, const ProgressCallback& progress) const final;
  std::string text(const DatasetReport& report) const final;
  JsonObject json(const DatasetReport& report) const final;

 protected:
  // The shape of the rows, in header.images, and what else the kind has beside targets, mean and deviation.
  virtual void read_rows(const Hdf5File& file, const std::string& stored, DatasetHeader& header) const = 0;
  virtual void write_rows(Hdf5File& file, const DatasetHeader& header) const {}
  virtual std::string identity_text(const DatasetHeader& header) const = 0;
  // Checks the values of rows as they are read.
  virtual StoredRows::Check row_check(const DatasetFile& file) const {
    return [](IndexRange, const uint8_t*) {};
  }
  virtual void open_ends(const std::shared_ptr<const Hdf5File>& file, DatasetFile& out) const {}
  virtual uint64_t hash_of(const DatasetFile& file, int64_t sample) const;
  virtual std::string shape_text(const DatasetReport& report) const = 0;

 private:
  friend void open_labelled(RowSource rows, RowSource labels, int64_t memory_bytes, DatasetFile& out);
  void open_rows(RowSource rows, int64_t memory_bytes, DatasetFile& out) const;
};

// The samples of one file of images or tables, with their targets. A kind measures its rows, and may change them.
class LabelledCopy : public SampleWriter {
 public:
  LabelledCopy(NewDataset dataset, StoredType type);
  void append(const std::shared_ptr<const DatasetFile>& from, IndexRange samples,
              const std::vector<int32_t>& labels) override;
  void close() override;
  PartialOutput& output() override { return pending_; }

 protected:
  // `bytes` of rows as they are to be stored here.
  virtual const uint8_t* moved(const DatasetHeader& from, const uint8_t* bytes, int64_t rows) { return bytes; }
  virtual void measure_encoded(const DatasetFile& from, IndexRange samples) {}
  virtual void measure(const uint8_t* bytes, int64_t rows) = 0;
  virtual void set_moments(DatasetHeader& header) const = 0;
  const DatasetHeader& header() const { return header_; }

 private:
  PartialOutput pending_;
  Hdf5File file_;
  std::unique_ptr<TargetCopy> targets_;
  std::vector<float> weights_;  // of the samples
  DatasetHeader header_;
  ChunkWriter rows_;
  bool measures_;
  RaggedEnds parts_;  // of encoded images
};

}  // namespace lockstep
