#include "data/samples/text/packed_dataset.h"

#include <algorithm>
#include <map>

#include "core/base/error.h"
#include "core/base/trace.h"
#include "data/samples/sampler.h"

namespace lockstep {

PackedDataset::PackedDataset(std::shared_ptr<const TokenSource> source, IndexRange records, PackingOptions options)
    : source_(std::move(source)), options_(std::move(options)) {
  const int64_t context = options_.context;
  check(context > 0 && context <= INT32_MAX && records.begin >= 0 && records.end <= source_->records(), "samples of ",
        context, " tokens from records [", records.begin, ", ", records.end, ")");
  std::sort(options_.ignore_tokens.begin(), options_.ignore_tokens.end());
  spec_ = {{{"tokens", DType::kInt32, {context}}, {std::string(kLabels), DType::kInt32, {context}}},
           masked() ? masked_ids(*source_) : source_->vocabulary_size(),
           "tokens",
           context,
           !masked()};
  spec_.length_buckets = options_.buckets;
  spec_.records = records.size();
  cut(records);
  require(!segments_.empty(), ExitCode::kConfig, "data.packing: none of ", records.size(),
          " records has two tokens, one to read and one to predict");
  if (!options_.pad) fill();
  check(options_.pad || (options_.buckets == 1 && !masked()), "packed samples with buckets or masks");
  if (!tells_documents()) return;
  spec_.tensors.push_back({"documents", DType::kInt32, {context}});
  spec_.tensors.push_back({"positions", DType::kInt32, {context}});
}

int64_t PackedDataset::size() const { return static_cast<int64_t>(options_.pad ? segments_.size() : ends_.size()); }

void PackedDataset::cut(IndexRange records) {
  int64_t number = 0;
  source_->visit_records([&](IndexRange tokens) {
    const int64_t record = number++;
    if (record < records.begin || record >= records.end) return;
    const int64_t end = masked() ? tokens.end : tokens.end - 1;  // the last token has none after it
    spec_.long_records += end - tokens.begin > options_.context;
    spec_.longest_record = std::max(spec_.longest_record, tokens.size());
    for (int64_t at = tokens.begin; at < end; at += options_.context)
      segments_.push_back({at, static_cast<int32_t>(std::min(options_.context, end - at))});
  });
}

void PackedDataset::fill() {
  std::stable_sort(segments_.begin(), segments_.end(),
                   [](const Segment& a, const Segment& b) { return a.count > b.count; });
  std::vector<int64_t> sample_of(segments_.size());
  std::map<int64_t, std::vector<int64_t>> open;  // samples by the room that they have
  for (size_t i = 0; i < segments_.size(); ++i) {
    const int64_t count = segments_[i].count;
    const auto fullest = open.lower_bound(count);
    int64_t room = options_.context;
    if (fullest == open.end()) {
      sample_of[i] = static_cast<int64_t>(ends_.size());
      ends_.push_back(0);
    } else {
      room = fullest->first;
      sample_of[i] = fullest->second.back();
      fullest->second.pop_back();
      if (fullest->second.empty()) open.erase(fullest);
    }
    ++ends_[static_cast<size_t>(sample_of[i])];  // for now, how many it holds
    if (room > count) open[room - count].push_back(sample_of[i]);
  }
  std::vector<int64_t> next;
  int64_t total = 0;
  for (int64_t& end : ends_) {
    next.push_back(total);
    end = total += end;
  }
  places_.resize(segments_.size());
  for (size_t i = 0; i < segments_.size(); ++i)
    places_[static_cast<size_t>(next[static_cast<size_t>(sample_of[i])]++)] = static_cast<int64_t>(i);
}

// The segment that is at a place of the packing in an epoch: one of those with the same length.
PackedDataset::Segment PackedDataset::segment_at(int64_t epoch, int64_t place) const {
  const Segment& own = segments_[static_cast<size_t>(place)];
  if (!options_.exchange) return own;
  const auto [first, last] = std::equal_range(segments_.begin(), segments_.end(), own,
                                              [](const Segment& a, const Segment& b) { return a.count > b.count; });
  const uint64_t seed = options_.seed ^ static_cast<uint64_t>(own.count) << 32;
  const Sampler order(last - first, seed, epoch, true);
  return first[order(place - (first - segments_.begin()))];
}

int64_t PackedDataset::length(int64_t, int64_t index) const {
  return options_.pad ? segments_[static_cast<size_t>(index)].count : options_.context;
}

void PackedDataset::read(int64_t epoch, int64_t index, SampleMemory sample) const {
  trace_mark();
  check(index >= 0 && index < size(), "sample ", index, " of ", size());
  int32_t *ids = static_cast<int32_t*>(sample[0]), *labels = static_cast<int32_t*>(sample[1]);
  int32_t *documents = tells_documents() ? static_cast<int32_t*>(sample[2]) : nullptr,
          *positions = tells_documents() ? static_cast<int32_t*>(sample[3]) : nullptr;
  int64_t at = 0;
  int32_t document = 0;
  const auto mark = [&](int64_t count) {
    for (int32_t i = 0; documents && i < count; ++i) documents[at + i] = document, positions[at + i] = i;
    at += count;
    ++document;
  };
  const auto put = [&](const Segment& segment) {
    const int64_t count = segment.count, begin = segment.begin;
    source_->read({begin, begin + count}, ids + at);
    if (masked()) {
      Masking{options_.mask, options_.seed}.hide(*source_, epoch, index, count, ids + at, labels + at);
      ignore_labels(*source_, {begin, begin + count}, options_.ignore_tokens, labels + at);
      return mark(count);
    }
    std::copy(ids + at + 1, ids + at + count, labels + at);
    source_->read({begin + count, begin + count + 1}, labels + at + count - 1);
    ignore_labels(*source_, {begin + 1, begin + count + 1}, options_.ignore_tokens, labels + at);
    mark(count);
  };
  if (options_.pad) put(segments_[static_cast<size_t>(index)]);
  else
    for (int64_t i = index > 0 ? ends_[static_cast<size_t>(index - 1)] : 0; i < ends_[static_cast<size_t>(index)]; ++i)
      put(segment_at(epoch, places_[static_cast<size_t>(i)]));
  std::fill(ids + at, ids + options_.context, 0);
  std::fill(labels + at, labels + options_.context, kIgnoreIndex);
  mark(options_.context - at);
}

}  // namespace lockstep
