// PairDataset: samples for tuning by preferences: both answers of a pair, one behind the other in a row, each behind
// the prompt and as a document of its own. Shares its TokenSource; holds a few numbers for each pair.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/partition.h"
#include "data/samples/text/token_dataset.h"

namespace lockstep {

// Of one record of a pair: its tokens, and for each 1 where it is a target, else 0.
struct PairedRecord {
  std::span<const int32_t> tokens;
  std::span<const uint8_t> targets;
};
// Where the answers of a pair begin: of each record the index of the first target that counts. Both begin with the same
// prompt. What an assistant said in earlier turns that both have is a part of it, although it is marked as targets.
struct AnswerStarts {
  int64_t chosen = 0, rejected = 0;
};
// Throws ExitCode::kBadData, without a place, where an answer has no target, or what comes before the answers differs.
AnswerStarts starts_of_answers(const PairedRecord& chosen, const PairedRecord& rejected);

struct PairOptions {
  int64_t context = 0;                      // positions of a record; a row has twice as many
  std::vector<int64_t> ignore_tokens = {};  // targets with these ids do not count
  int64_t buckets = 1;                      // DataSpec::length_buckets
};

// A record of n tokens has n - 1 positions, of which those beyond `context` are left out.
class PairDataset final : public Dataset {
 public:
  // Uses the pairs [pairs.begin, pairs.end) of the source, but those of which the context does not hold a token of each
  // answer that counts. Reads all of them. Throws ExitCode::kConfig where none is left, kBadData as
  // starts_of_answers().
  PairDataset(std::shared_ptr<const TokenSource> source, IndexRange pairs, PairOptions options);
  int64_t size() const override { return static_cast<int64_t>(pairs_.size()); }
  // int32 [2 context] each: "tokens", "documents" (0: chosen, 1: rejected, 2: padding) and "positions"
  // (core/nn/attention_scope.h), kNextTokens (the token behind each, kIgnoreIndex behind padding) and kAnswers (1 where
  // that is a target of the answer, else 0).
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return source_->identity(); }
  int64_t length(int64_t epoch, int64_t index) const override;
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return source_->vocabulary(); }

 private:
  struct Pair {
    IndexRange chosen, rejected;  // tokens, each with the last one's label
    AnswerStarts starts;
  };
  // What is read of a pair's tokens and marks.
  struct Read {
    std::vector<int32_t> tokens;
    std::vector<uint8_t> targets;
    PairedRecord record() const { return {tokens, targets}; }
  };
  Read read_record(IndexRange tokens) const;
  bool counts(const Read& record, int64_t token) const;
  void add(int64_t number, IndexRange chosen, IndexRange rejected);

  std::shared_ptr<const TokenSource> source_;
  PairOptions options_;
  DataSpec spec_;
  std::vector<Pair> pairs_;
};

}  // namespace lockstep
