#include "data/samples/labelled_text.h"

#include <algorithm>
#include <numeric>
#include <span>

#include "core/base/error.h"
#include "core/base/trace.h"
#include "data/samples/sample_parts.h"

namespace lockstep {

LabelledText::LabelledText(std::shared_ptr<const DatasetFile> file, IndexRange records, int64_t context,
                           int64_t buckets)
    : file_(std::move(file)), tokens_(file_), first_(records.begin), context_(context) {
  const DatasetHeader& h = file_->header;
  check(records.begin >= 0 && records.end <= h.records.count && !records.empty() && context > 0 && context <= INT32_MAX,
        "samples of ", context, " tokens of records [", records.begin, ", ", records.end, ") of ", h.records.count);
  begins_.reserve(static_cast<size_t>(records.size()));
  lengths_.reserve(static_cast<size_t>(records.size()));
  int64_t number = 0, longest = 0;
  visit_records(*file_, [&](IndexRange tokens) {
    const int64_t record = number++;
    if (record < records.begin || record >= records.end) return;
    begins_.push_back(tokens.begin);
    lengths_.push_back(static_cast<int32_t>(std::min(context, tokens.size())));
    cut_.push_back(tokens.size() > context);
    longest = std::max(longest, tokens.size());
  });
  spec_ = {{{"tokens", DType::kInt32, {context}},
            {std::string(kLabels), DType::kInt32, {}},
            {"documents", DType::kInt32, {context}},
            {"positions", DType::kInt32, {context}}},
           h.classes,
           "tokens",
           context,
           false,
           h.vocabulary_size};
  if (!file_->weights.empty()) spec_.tensors.push_back({std::string(kSampleWeights), DType::kFloat32, {}});
  spec_.length_buckets = buckets;
  spec_.records = records.size();
  spec_.long_records = std::count(cut_.begin(), cut_.end(), true);
  spec_.longest_record = longest;
  if (h.records.labelled) spec_.class_counts = class_counts(*file_, records);
}

void LabelledText::read(int64_t, int64_t index, SampleMemory sample) const {
  trace_mark();
  check(index >= 0 && index < size(), "sample ", index, " of ", size());
  const int64_t begin = begins_[static_cast<size_t>(index)], length = lengths_[static_cast<size_t>(index)];
  auto *ids = static_cast<int32_t*>(sample[0]), *documents = static_cast<int32_t*>(sample[2]),
       *positions = static_cast<int32_t*>(sample[3]);
  tokens_.read({begin, begin + length}, ids);
  // A record that is cut ends as a whole one does.
  const auto end = file_->header.vocabulary ? file_->header.vocabulary->record_end() : std::span<const int32_t>();
  if (cut_[static_cast<size_t>(index)] && std::ssize(end) < length)
    std::copy(end.begin(), end.end(), ids + length - std::ssize(end));
  std::fill(ids + length, ids + context_, 0);
  *static_cast<int32_t*>(sample[1]) = file_->labels.empty() ? 0 : file_->labels[static_cast<size_t>(first_ + index)];
  write_weight(*file_, first_ + index, sample);
  std::fill(documents, documents + length, 0);
  std::fill(documents + length, documents + context_, 1);
  std::iota(positions, positions + length, 0);
  std::iota(positions + length, positions + context_, 0);
}

}  // namespace lockstep
