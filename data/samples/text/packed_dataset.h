// PackedDataset: samples made of whole records. `pack` fills each sample with records that do not see each other; `pad`
// gives each record a sample of its own. Shares its TokenSource; holds a few numbers for each record.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/partition.h"
#include "data/samples/text/token_dataset.h"

namespace lockstep {

struct PackingOptions {
  int64_t context = 0;
  std::vector<int64_t> ignore_tokens = {};  // targets with these ids become kIgnoreIndex
  bool pad = false;                         // one record a sample
  int64_t buckets = 1;                      // if so: DataSpec::length_buckets
  // Training: records of equal length change places in each epoch, a function of (seed, epoch).
  bool exchange = false;
  uint64_t seed = 0;
  double mask = 0;  // above 0, if padded: Masking; no token sees the padding
};

// A record of n tokens has n - 1 positions, each with the token after it as its label, or with `mask` n; of one with
// more positions than `context`, segments of `context` are cut, which are then as records are. A segment is in one
// sample of each epoch. Packing is best-fit decreasing: the longest segment first, each into the fullest sample that
// has room. Which lengths a sample holds is thus the same in every epoch, and so is the number of samples.
class PackedDataset final : public Dataset {
 public:
  // Uses the records [records.begin, records.end) of the source. Throws ExitCode::kConfig if none of them has a label.
  PackedDataset(std::shared_ptr<const TokenSource> source, IndexRange records, PackingOptions options);
  int64_t size() const override;
  // "tokens" and "labels" [context]; if packed or masked also "documents" and "positions" (core/nn/attention_scope.h).
  // What is left of a sample is token 0, no target, and a document of its own.
  const DataSpec& spec() const override { return spec_; }
  Hash128 identity() const override { return source_->identity(); }
  int64_t length(int64_t epoch, int64_t index) const override;
  void read(int64_t epoch, int64_t index, SampleMemory sample) const override;
  const Vocabulary* vocabulary() const override { return source_->vocabulary(); }

 private:
  struct Segment {
    int64_t begin = 0;  // its first token
    int32_t count = 0;  // of positions
  };
  bool masked() const { return options_.mask > 0; }
  bool tells_documents() const { return !options_.pad || masked(); }
  void cut(IndexRange records);  // counts the long ones, too
  void fill();
  Segment segment_at(int64_t epoch, int64_t place) const;

  std::shared_ptr<const TokenSource> source_;
  PackingOptions options_;
  DataSpec spec_;
  std::vector<Segment> segments_;  // if packed, the longest first
  std::vector<int64_t> places_;    // if packed: places in segments_, sample after sample
  std::vector<int64_t> ends_;      // of each sample in places_
};

}  // namespace lockstep
