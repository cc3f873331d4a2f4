#include "data/samples/sample_writer.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/samples/channel_sums.h"
#include "data/samples/token_dataset.h"
#include "data/samples/token_writer.h"

namespace lockstep {
namespace {

constexpr int64_t kTokensAtOnce = 1 << 18, kSamplesAtOnce = 256;

int32_t label_of(const DatasetFile& file, int64_t sample, const std::vector<int32_t>& numbers) {
  const int32_t label = file.labels[static_cast<size_t>(sample)];
  return numbers.empty() ? label : numbers[static_cast<size_t>(label)];
}

class TokenCopy final : public SampleWriter {
 public:
  explicit TokenCopy(NewDataset d)
      : writer_(d.path, d.replace, std::move(d.header.vocabulary), d.header.vocabulary_size) {
    if (d.header.records.paired) writer_.set_paired();
    if (d.header.records.labelled) writer_.set_classes(d.header.classes, std::move(d.header.class_names));
  }

  void append(const std::shared_ptr<const DatasetFile>& file, Range samples,
              const std::vector<int32_t>& labels) override {
    const FileTokens source(file);
    if (source.records() == 0) return copy(source, samples);
    int64_t record = samples.begin;
    visit_records(*file, records_of(file->header, samples), [&](Range tokens) {
      copy(source, tokens);
      if (file->header.records.labelled) writer_.end_record(label_of(*file, record++, labels));
      else writer_.end_record();
    });
  }
  void close() override { writer_.close(); }
  PartialOutput& output() override { return writer_.output(); }

 private:
  void copy(const FileTokens& source, Range tokens) {
    for (Range now = tokens; now.begin < tokens.end; now.begin = now.end) {
      now.end = std::min(tokens.end, now.begin + kTokensAtOnce);
      ids_.resize(static_cast<size_t>(now.size()));
      source.read(now, ids_.data());
      targets_.resize(source.has_targets() ? ids_.size() : 0);
      if (source.has_targets()) source.read_targets(now, targets_.data());
      writer_.add(ids_, targets_);
    }
  }

  TokenWriter writer_;
  std::vector<int32_t> ids_;
  std::vector<uint8_t> targets_;
};

// The targets of images and of rows of tables: what is copied waits in memory, but for masks.
class TargetCopy {
 public:
  TargetCopy(Hdf5File& file, const NewDataset& d) : path_(d.path), offset_(d.header.target_offset) {
    const DatasetHeader& h = d.header;
    if (h.target != TargetKind::kMasks) return;
    const Shape shape = h.encoded ? Shape{d.mask_rows} : Shape{d.mask_rows, h.images[1], h.images[2]};
    masks_ = std::make_unique<ChunkWriter>(file, "masks", StoredType::kUInt8, shape, mask_rows_per_chunk(h));
  }

  void append(const DatasetFile& file, Range samples, const std::vector<int32_t>& labels) {
    const DatasetHeader& h = file.header;
    for (int64_t i = samples.begin; i < samples.end; ++i) {
      if (h.target == TargetKind::kLabels) labels_.push_back(label_of(file, i, labels));
      if (h.target == TargetKind::kNumbers)
        numbers_.push_back(static_cast<float>(file.numbers[static_cast<size_t>(i)] + (h.target_offset - offset_)));
      if (h.target == TargetKind::kBoxes) append_boxes(file.boxes_of(i), labels);
      if (h.target == TargetKind::kMasks && h.encoded)
        ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part_of(h.target_ends, i).size());
    }
    if (masks_)
      file.masks->visit(mask_rows_of(h, samples),
                        [&](Range piece, const uint8_t* bytes) { masks_->append(bytes, piece.size()); });
  }

  // With `measures`, numbers have a mean and deviation of their own.
  void close(Hdf5File& file, bool measures, DatasetHeader& h) {
    if (h.target == TargetKind::kLabels) return write_labels(file, labels_, h);
    if (h.target == TargetKind::kBoxes) {
      require(!boxes_.empty(), ExitCode::kBadData, path_, ": none of its images would have a box");
      return write_boxes(file, boxes_, ends_, h);
    }
    if (h.target == TargetKind::kNumbers) {
      FeatureMoments moments;
      for (float number : numbers_) moments.add(number);
      if (measures) h.target_mean = moments.mean + offset_, h.target_std = moments.scale();
      return write_stored_numbers(file, numbers_, h);
    }
    h.label_hashes = masks_->finish();
    if (h.encoded) h.target_end_hashes = write_ends(file, "mask_ends", ends_);
  }

 private:
  void append_boxes(std::span<const float> rows, const std::vector<int32_t>& labels) {
    for (size_t at = 0; at < rows.size(); ++at) {
      const bool is_class = at % kBoxValues == 0 && !labels.empty();
      boxes_.push_back(is_class ? static_cast<float>(labels[static_cast<size_t>(rows[at])]) : rows[at]);
    }
    ends_.push_back(static_cast<int64_t>(boxes_.size()) / kBoxValues);
  }

  std::string path_;
  std::vector<int32_t> labels_;
  double offset_;  // of the numbers, which are stored less that
  std::vector<float> numbers_;
  std::vector<float> boxes_;
  std::vector<int64_t> ends_;  // of boxes, or of masks' bytes
  std::unique_ptr<ChunkWriter> masks_;
};

class LabelledCopy final : public SampleWriter {
 public:
  explicit LabelledCopy(NewDataset d)
      : pending_(d.path, d.replace),
        file_(Hdf5File::create(pending_.dataset())),
        targets_(file_, d),
        header_(std::move(d.header)),
        rows_(file_, header_.kind == DataKind::kTable ? "features" : "images",
              header_.kind == DataKind::kTable ? StoredType::kFloat32 : StoredType::kUInt8, shape(header_, d),
              rows_per_chunk(header_)),
        measures_(d.measure),
        sums_(header_.images.back()),
        moments_(static_cast<size_t>(header_.images.back())) {
    header_.images[0] = d.samples;
  }

  void append(const std::shared_ptr<const DatasetFile>& from, Range samples,
              const std::vector<int32_t>& labels) override {
    const DatasetFile& file = *from;
    targets_.append(file, samples, labels);
    for (int64_t i = samples.begin; header_.encoded && i < samples.end; ++i)
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part_of(file.header.ends, i).size());
    file.rows->visit(rows_of(file.header, samples), [&](Range piece, const uint8_t* bytes) {
      if (header_.offset != file.header.offset) bytes = moved(file.header, bytes, piece.size());
      rows_.append(bytes, piece.size());
      if (measures_ && !header_.encoded) measure(bytes, piece.size());
    });
    if (measures_ && header_.encoded)
      for (int64_t i = samples.begin; i < samples.end; ++i)
        file.visit_image(
            i, [&](const uint8_t* pixels, int64_t height, int64_t width) { sums_.add(pixels, height * width); });
  }

  void close() override {
    header_.hashes = rows_.finish();
    if (measures_) set_moments();
    targets_.close(file_, measures_, header_);
    if (header_.encoded) header_.end_hashes = write_ends(file_, "ends", ends_);
    write_dataset_header(file_, header_);
    file_.close();
  }
  PartialOutput& output() override { return pending_; }

 private:
  static Shape shape(const DatasetHeader& h, const NewDataset& d) {
    Shape out = h.encoded ? Shape{0} : h.images;
    out[0] = d.rows;
    return out;
  }
  void measure(const uint8_t* bytes, int64_t rows) {
    const auto columns = moments_.size();
    if (header_.kind == DataKind::kImages) return sums_.add(bytes, rows * header_.images[1] * header_.images[2]);
    const auto* values = reinterpret_cast<const float*>(bytes);
    for (size_t i = 0; i < static_cast<size_t>(rows) * columns; ++i) moments_[i % columns].add(values[i]);
  }
  // Rows of a table whose features are stored less other offsets than here.
  const uint8_t* moved(const DatasetHeader& from, const uint8_t* bytes, int64_t rows) {
    const auto columns = moments_.size();
    const auto* values = reinterpret_cast<const float*>(bytes);
    moved_.assign(values, values + static_cast<size_t>(rows) * columns);
    for (size_t i = 0; i < moved_.size(); ++i)
      moved_[i] = static_cast<float>(moved_[i] + (from.offset_of(i % columns) - header_.offset_of(i % columns)));
    return reinterpret_cast<const uint8_t*>(moved_.data());
  }
  void set_moments() {
    if (header_.kind == DataKind::kImages) {
      header_.mean.clear(), header_.stddev.clear();
      return sums_.moments(header_.mean, header_.stddev);
    }
    for (size_t c = 0; c < moments_.size(); ++c)
      if (header_.mean[c] != 0 || header_.stddev[c] != 1)  // else a category's, which stays as it is
        header_.mean[c] = moments_[c].mean + header_.offset_of(c), header_.stddev[c] = moments_[c].scale();
  }

  PartialOutput pending_;
  Hdf5File file_;
  TargetCopy targets_;
  DatasetHeader header_;
  ChunkWriter rows_;
  bool measures_;
  ChannelSums sums_;
  std::vector<FeatureMoments> moments_;
  std::vector<float> moved_;
  std::vector<int64_t> ends_;
};

}  // namespace

std::unique_ptr<SampleWriter> make_sample_writer(NewDataset dataset) {
  if (dataset.header.kind == DataKind::kTokens) return std::make_unique<TokenCopy>(std::move(dataset));
  return std::make_unique<LabelledCopy>(std::move(dataset));
}

Range rows_of(const DatasetHeader& h, Range samples) {
  if (!h.encoded || samples.empty()) return samples;
  return {part_of(h.ends, samples.begin).begin, part_of(h.ends, samples.end - 1).end};
}

Range mask_rows_of(const DatasetHeader& h, Range samples) {
  if (!h.encoded || samples.empty()) return samples;
  return {part_of(h.target_ends, samples.begin).begin, part_of(h.target_ends, samples.end - 1).end};
}

void copy_samples(const std::shared_ptr<const DatasetFile>& file, Range samples, const std::vector<int32_t>& labels,
                  SampleWriter& to, const std::function<void(int64_t end)>& done) {
  const bool text = file->header.kind == DataKind::kTokens && !file->record_ends;
  const int64_t step = text ? kTokensAtOnce : kSamplesAtOnce;
  for (Range now = samples; now.begin < samples.end; now.begin = now.end) {
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
