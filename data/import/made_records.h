// MadeRecords: records that one thread of an import has made of a part of its input, until they are written in their
// order. Plain values and functions.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "data/samples/text/token_writer.h"
#include "data/text/record_encoder.h"

namespace lockstep {

// One for each thread; `reserved` as of RecordEncoder.
inline std::vector<std::unique_ptr<RecordEncoder>> record_encoders(const Vocabulary& vocabulary, int threads,
                                                                   const std::vector<std::string>& reserved = {}) {
  std::vector<std::unique_ptr<RecordEncoder>> out;
  for (int i = 0; i < threads; ++i) out.push_back(std::make_unique<RecordEncoder>(vocabulary, reserved));
  return out;
}

struct MadeRecord {
  size_t tokens = 0;       // 0: it is empty, and left out
  std::string label = {};  // empty: none
  std::string bad = {};    // what is wrong with the input, for a message; it has no tokens then
  float weight = 1;        // of one that has a label
  int64_t line = 0;        // where it is
};

struct MadeRecords {
  std::vector<int32_t> ids;      // of all of them
  std::vector<uint8_t> targets;  // likewise
  std::vector<MadeRecord> records;

  // Encodes the next record. Where that fails nothing of it stays.
  void add(RecordEncoder& encoder, const std::vector<TextPart>& parts, MadeRecord about) {
    const size_t before = ids.size();
    try {
      encoder.encode(parts, ids, targets);
      check(ids.size() == targets.size(), "tokens without marks");
    } catch (const Error&) {
      ids.resize(before);
      targets.resize(before);
      throw;
    }
    about.tokens = ids.size() - before;
    records.push_back(std::move(about));
  }
  void drop_last() {
    ids.resize(ids.size() - records.back().tokens);
    targets.resize(ids.size());
    records.pop_back();
  }
};

// Hands the records to a writer, one after the other.
class RecordsOut {
 public:
  RecordsOut(const MadeRecords& made, TokenWriter& writer) : made_(made), writer_(writer) {}
  void write(const MadeRecord& record) {
    writer_.add(std::span(made_.ids).subspan(at_, record.tokens), std::span(made_.targets).subspan(at_, record.tokens));
    if (record.label.empty()) writer_.end_record();
    else writer_.end_record(record.label, record.weight);
    at_ += record.tokens;
  }

 private:
  const MadeRecords& made_;
  TokenWriter& writer_;
  size_t at_ = 0;
};

}  // namespace lockstep
