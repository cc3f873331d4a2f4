#include "data/samples/text/labelled_text.h"

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
  const std::span<int32_t> row(static_cast<int32_t*>(sample[0]), static_cast<size_t>(context_));
  tokens_.read({begin, begin + length}, row.data());
  const auto text = row.first(static_cast<size_t>(length));
  if (cut_[static_cast<size_t>(index)] && file_->header.vocabulary)
    end_cut_text(text, file_->header.vocabulary->record_end());
  pad_text(row, text.size(), static_cast<int32_t*>(sample[2]), static_cast<int32_t*>(sample[3]));
  *static_cast<int32_t*>(sample[1]) = file_->labels.empty() ? 0 : file_->labels[static_cast<size_t>(first_ + index)];
  write_weight(*file_, first_ + index, sample);
}

void end_cut_text(std::span<int32_t> text, std::span<const int32_t> end) {
  if (end.size() < text.size()) std::copy(end.begin(), end.end(), text.last(end.size()).begin());
}

void pad_text(std::span<int32_t> row, size_t length, int32_t* documents, int32_t* positions) {
  const auto rest = row.subspan(length);
  std::fill(rest.begin(), rest.end(), 0);
  std::fill_n(documents, length, 0);
  std::fill_n(documents + length, rest.size(), 1);
  std::iota(positions, positions + length, 0);
  std::iota(positions + length, positions + row.size(), 0);
}

}  // namespace lockstep
