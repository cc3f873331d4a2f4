// TokenWriter: a dataset file of tokens, written in one pass whose length nobody knows before its end, so that an input
// may be a pipe. Tokens and records wait in unnamed files beside the output; memory is bounded. Used by one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "core/base/plain_file.h"
#include "core/io/hdf5_file.h"
#include "core/io/pending_file.h"
#include "data/vocabulary.h"

namespace lockstep {

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
  int64_t tokens() const { return tokens_; }
  int64_t records() const { return records_; }
  void close();   // the file is complete, under its temporary name; without end_record() it has no records
  void commit();  // it appears
  void finish() { close(), commit(); }

 private:
  void append_ones(int64_t count);

  PendingFile pending_;
  std::unique_ptr<Vocabulary> vocabulary_;
  int64_t vocabulary_size_;
  StoredType type_;  // of the ids
  Spool ids_, targets_, ends_;
  int64_t tokens_ = 0, records_ = 0, record_begin_ = 0;
  bool all_targets_ = true;  // until then no mark is written
};

}  // namespace lockstep
