#include "data/sample_writer.h"

#include <algorithm>

#include "core/base/error.h"
#include "data/channel_sums.h"
#include "data/partial_output.h"
#include "data/token_dataset.h"
#include "data/token_writer.h"

namespace lockstep {
namespace {

constexpr int64_t kTokensAtOnce = 1 << 18, kSamplesAtOnce = 256;

class TokenCopy final : public SampleWriter {
 public:
  explicit TokenCopy(NewDataset d)
      : writer_(d.path, d.replace, std::move(d.header.vocabulary), d.header.vocabulary_size) {}

  void append(const std::shared_ptr<const DatasetFile>& file, Range samples, const std::vector<int32_t>&) override {
    const FileTokens source(file);
    if (source.records() == 0) return copy(source, samples);
    visit_records(*file, samples, [&](Range tokens) {
      copy(source, tokens);
      writer_.end_record();
    });
  }
  void close() override { writer_.close(); }
  void commit() override { writer_.commit(); }

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

class LabelledCopy final : public SampleWriter {
 public:
  explicit LabelledCopy(NewDataset d)
      : pending_(d.path, d.replace),
        file_(Hdf5File::create(pending_.dataset())),
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
    for (int64_t i = samples.begin; i < samples.end; ++i) {
      const int32_t label = file.labels[static_cast<size_t>(i)];
      labels_.push_back(labels.empty() ? label : labels[static_cast<size_t>(label)]);
    }
    for (int64_t i = samples.begin; header_.encoded && i < samples.end; ++i)
      ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part_of(file.header.ends, i).size());
    file.rows->visit(rows_of(file.header, samples), [&](Range piece, const uint8_t* bytes) {
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
    write_labels(file_, labels_, header_);
    if (header_.encoded) header_.end_hashes = write_ends(file_, "ends", ends_);
    write_dataset_header(file_, header_);
    file_.close();
  }
  void commit() override { pending_.commit(); }

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
  void set_moments() {
    if (header_.kind == DataKind::kImages) {
      header_.mean.clear(), header_.stddev.clear();
      return sums_.moments(header_.mean, header_.stddev);
    }
    for (size_t c = 0; c < moments_.size(); ++c)
      if (header_.mean[c] != 0 || header_.stddev[c] != 1)  // else a category's, which stays as it is
        header_.mean[c] = moments_[c].mean, header_.stddev[c] = moments_[c].scale();
  }

  PartialOutput pending_;
  Hdf5File file_;
  DatasetHeader header_;
  ChunkWriter rows_;
  bool measures_;
  ChannelSums sums_;
  std::vector<FeatureMoments> moments_;
  std::vector<int32_t> labels_;
  std::vector<int64_t> ends_;
};

}  // namespace

void require_copyable(const std::string& path, const DatasetHeader& h) {
  require(h.target == TargetKind::kLabels && !h.records.labelled, ExitCode::kBadData, path,
          ": holds masks, boxes, numbers to predict or labels of texts; only images and rows with labels, and text "
          "without, are copied yet");
}

std::unique_ptr<SampleWriter> make_sample_writer(NewDataset dataset) {
  if (dataset.header.kind == DataKind::kTokens) return std::make_unique<TokenCopy>(std::move(dataset));
  return std::make_unique<LabelledCopy>(std::move(dataset));
}

Range rows_of(const DatasetHeader& h, Range samples) {
  if (!h.encoded || samples.empty()) return samples;
  return {part_of(h.ends, samples.begin).begin, part_of(h.ends, samples.end - 1).end};
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
  out.mean = h.mean, out.stddev = h.stddev;
  return out;
}

}  // namespace lockstep
