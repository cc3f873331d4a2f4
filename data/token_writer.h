// TokenWriter: a dataset file of tokens, written in one pass whose length nobody knows before its end, so that an input
// may be a pipe. Tokens and records wait in unnamed files beside the output; memory is bounded. Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/plain_file.h"
#include "core/io/hdf5_file.h"
#include "core/io/pending_file.h"
#include "data/vocabulary.h"

namespace lockstep {

struct DatasetHeader;  // data/dataset_file.h

// Bytes in a file without a name, which goes with its descriptor. Throws ExitCode::kStorage.
class Spool {
 public:
  explicit Spool(const std::string& beside);
  void append(const void* bytes, size_t count);
  void flush();
  int descriptor() const { return file_.number(); }
  // Bytes [offset, offset + count) of what was flushed.
  void read(int64_t offset, void* to, size_t count) const;

 private:
  std::string beside_, pending_;
  Descriptor file_;
};

class TokenWriter {
 public:
  // `vocabulary`: null at level "ids", where `vocabulary_size` counts. Throws kOutputLocked where the output exists
  // (unless `replace`) or cannot be made.
  TokenWriter(const std::string& output, bool replace, std::unique_ptr<Vocabulary> vocabulary,
              int64_t vocabulary_size = 0);
  // Tokens of the current record, ids of the vocabulary. `targets`: 1 for each that is a target, else 0; empty: all
  // are.
  void add(std::span<const int32_t> ids, std::span<const uint8_t> targets = {});
  void end_record();  // at least one token was added since the last one
  // The same of a record with a label; then every record has one. They are numbered as index_of_labels does, in the
  // end; until then each takes 4 bytes of memory. Throws kBadData where there are more than kMostClasses.
  void end_record(const std::string& label);
  // Labels whose numbers and names stand before: to be called before the first record; then every record has one.
  void set_classes(int64_t classes, std::vector<std::string> names);
  void end_record(int32_t label);
  // Records are pairs: after each that was chosen comes the one that was rejected.
  void set_paired() { paired_ = true; }
  int64_t tokens() const { return tokens_; }
  int64_t records() const { return records_; }
  void close();   // the file is complete, under its temporary name; without end_record() it has no records
  void commit();  // it appears
  void finish() { close(), commit(); }

 private:
  void append_ones(int64_t count);
  void write_labels_of(Hdf5File& file, DatasetHeader& header);

  std::string output_;
  PendingFile pending_;
  std::unique_ptr<Vocabulary> vocabulary_;
  int64_t vocabulary_size_;
  StoredType type_;  // of the ids
  Spool ids_, targets_, ends_;
  int64_t tokens_ = 0, records_ = 0, record_begin_ = 0;
  bool paired_ = false;
  bool all_targets_ = true;                       // until then no mark is written
  std::map<std::string, int32_t> label_numbers_;  // in the order in which they came; or
  int64_t classes_ = 0;                           // as of set_classes()
  std::vector<std::string> class_names_;
  std::vector<int32_t> labels_;
};

}  // namespace lockstep
