// LabelledText: samples of a record of text, cut or padded to `context` tokens, and its label, which is 0 in a file
// without labels. The training and the validation dataset share one file.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/partition.h"
#include "data/samples/dataset.h"
#include "data/samples/dataset_file.h"
#include "data/samples/text/token_dataset.h"

namespace lockstep {

class LabelledText final : public Dataset {
 public:
  // The records [records.begin, records.end) of a file, as DataSpec::length_buckets says.
  LabelledText(std::shared_ptr<const DatasetFile> file, IndexRange records, int64_t context, int64_t buckets = 1);
  int64_t size() const override { return static_cast<int64_t>(begins_.size()); }
  // "tokens" [context], "labels" [] and, so that no token sees the padding, "documents" and "positions" [context]
  // (core/nn/attention_scope.h): the record is document 0; what is left of a sample is token 0 of document 1.
  // Of a record that is cut the last tokens are those that the tokenizer ends a record with, [SEP] of WordPiece.
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return file_->header.identity; }
  int64_t length(int64_t, int64_t index) const override { return lengths_[static_cast<size_t>(index)]; }
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return tokens_.vocabulary(); }

 private:
  std::shared_ptr<const DatasetFile> file_;
  FileTokens tokens_;
  int64_t first_;  // record
  int64_t context_;
  DataSpec spec_;
  std::vector<int64_t> begins_;   // of each record: its first token, and
  std::vector<int32_t> lengths_;  // how many of its tokens are in the sample
  std::vector<bool> cut_;         // it has more
};

// A text that was cut ends as a whole one does: its last tokens become `end`, where there are more tokens than these.
void end_cut_text(std::span<int32_t> text, std::span<const int32_t> end);
// Of a row of tokens that begins with a text of `length`: the text is document 0, what is left of the row is token 0 of
// document 1, and each counts its positions from 0. `documents` and `positions` are as long as the row.
void pad_text(std::span<int32_t> row, size_t length, int32_t* documents, int32_t* positions);

}  // namespace lockstep
