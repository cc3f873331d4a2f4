#include "data/samples/sample_writer.h"

#include <algorithm>

#include "data/samples/sample_kind.h"

namespace lockstep {

std::unique_ptr<SampleWriter> make_sample_writer(NewDataset dataset) {
  const SampleKind& kind = sample_kind(dataset.header.kind);
  return kind.writer(std::move(dataset));
}

void copy_samples(const std::shared_ptr<const DatasetFile>& file, IndexRange samples,
                  const std::vector<int32_t>& labels, SampleWriter& to, const std::function<void(int64_t end)>& done) {
  constexpr int64_t kSamplesAtOnce = 256;
  const int64_t step = sample_kind(file->header.kind).is_one_sequence(*file) ? kTokensAtOnce : kSamplesAtOnce;
  for (IndexRange now = samples; now.begin < samples.end; now.begin = now.end) {
    now.end = std::min(samples.end, now.begin + step);
    to.append(file, now, labels);
    done(now.end);
  }
}

DatasetHeader described_as(const DatasetHeader& h) {
  DatasetHeader out;
  out.kind = h.kind;
  out.vocabulary_size = h.vocabulary_size;
  if (h.vocabulary) out.vocabulary = std::make_unique<Vocabulary>(*h.vocabulary);
  out.images = h.images;
  out.encoded = h.encoded;
  out.class_names = h.class_names;
  out.columns = h.columns;
  out.classes = h.classes;
  out.mean = h.mean, out.stddev = h.stddev, out.offset = h.offset;
  out.target = h.target;
  out.ignored = h.ignored;
  out.target_mean = h.target_mean, out.target_std = h.target_std, out.target_offset = h.target_offset;
  out.records.labelled = h.records.labelled;
  out.records.paired = h.records.paired;
  return out;
}

}  // namespace lockstep
