// TokenWriter: a dataset file of tokens, written in one pass whose length nobody knows before its end, so that an input
// may be a pipe. Tokens and records wait in the spools of a PartialOutput; memory is bounded. Used by one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/io/hdf5/hdf5_file.h"
#include "data/samples/dataset_file.h"
#include "data/samples/schema.h"
#include "data/store/partial_output.h"
#include "data/store/progress.h"
#include "data/text/vocabulary.h"

namespace lockstep {

class TokenWriter {
 public:
  // `vocabulary`: null at level "ids", where `vocabulary_size` counts. `made_of`: as PartialOutput has it; the tokens
  // and records of an import that was cut short are there again. Throws kOutputLocked where the output exists (unless
  // `replace`) or cannot be made.
  TokenWriter(const std::string& output, bool replace, std::unique_ptr<Vocabulary> vocabulary,
              int64_t vocabulary_size = 0, std::string made_of = {});
  // Tokens of the current record, ids of the vocabulary. `targets`: 1 for each that is a target, else 0; empty: all
  // are.
  void add(std::span<const int32_t> ids, std::span<const uint8_t> targets = {});
  void end_record();  // at least one token was added since the last one
  // The same of a record with a label; then every record has one. They are numbered as index_of_labels does, in the
  // end; until then each takes 8 bytes of memory. Throws kBadData where there are more than kMostClasses.
  void end_record(const std::string& label, float weight = 1);
  // Throws kBadData naming `where`, a column or field, for more than kManyLabels different ones that are not meant.
  void require_few_labels(const std::string& where, bool many_are_meant) const;
  // Labels whose numbers and names stand before: to be called before the first record; then every record has one.
  void set_classes(int64_t classes, std::vector<std::string> names);
  void end_record(int32_t label, float weight = 1);
  // The labels of end_record(label) get the numbers that they have in this data.
  void set_like(std::shared_ptr<const LikeData> like) { like_ = std::move(like); }
  // Records are pairs: after each that was chosen comes the one that was rejected.
  void set_paired() { paired_ = true; }
  int64_t tokens() const { return tokens_; }
  int64_t records() const { return records_; }
  // The position in the inputs of an import that was cut short, as it was given to save(); null where there is none.
  const JsonObject* found() const { return found_ ? &*found_ : nullptr; }
  // No count or size is larger, and sums of some of them are still integers.
  static constexpr int64_t kMostFound = int64_t{1} << 60;
  // An integer of it; refuses what is not within [least, most], as PartialOutput::found_integer does.
  int64_t found_integer(const std::string& key, int64_t least, int64_t most = kMostFound) {
    return output_file_.found_integer(*found_, key, least, most);
  }
  // So that an import can go on from here: between records, or in text without records anywhere.
  void save(const JsonObject& position);
  // The file is complete, under its temporary name; without end_record() it has no records.
  void close(const ProgressCallback& progress = {});
  void commit() { output_file_.commit(); }  // it appears
  PartialOutput& output() { return output_file_; }
  void finish(const ProgressCallback& progress = {}) { close(progress), commit(); }

 private:
  void append_ones(int64_t count);
  void write_labels_of(Hdf5File& file, DatasetHeader& header);

  void restore(const JsonObject& state);
  bool has_record_ends() const;

  std::string output_;
  PartialOutput output_file_;
  std::optional<JsonObject> found_;
  std::unique_ptr<Vocabulary> vocabulary_;
  int64_t vocabulary_size_;
  StoredType type_;  // of the ids
  Spool &ids_, &targets_, &ends_;
  // So that they survive: names by line, and a number and a weight for each record.
  Spool &label_names_, &record_labels_, &record_weights_;
  int64_t tokens_ = 0, records_ = 0, record_begin_ = 0;
  bool paired_ = false;
  bool all_targets_ = true;                       // until then no mark is written
  std::map<std::string, int32_t> label_numbers_;  // in the order in which they came; or
  int64_t classes_ = 0;                           // as of set_classes()
  std::vector<std::string> class_names_;
  std::vector<int32_t> labels_;
  std::vector<float> weights_;  // of the records that have a label
  std::shared_ptr<const LikeData> like_;
};

}  // namespace lockstep
