// A label for each sample, int32.
#include "core/base/error.h"
#include "data/samples/dataset_file.h"
#include "data/samples/header_parts.h"
#include "data/samples/sample_target.h"
#include "data/samples/schema.h"

namespace lockstep {
namespace {

class LabelCopy final : public TargetCopy {
 public:
  void append(const DatasetFile& file, IndexRange samples, const std::vector<int32_t>& labels) override {
    for (int64_t i = samples.begin; i < samples.end; ++i) labels_.push_back(label_of(file, i, labels));
  }
  void close(Hdf5File& file, bool, DatasetHeader& header) override { write_labels(file, labels_, header); }

 private:
  std::vector<int32_t> labels_;
};

class LabelTarget final : public SampleTarget {
 public:
  LabelTarget() : SampleTarget({.name = "labels", .dataset = "labels", .ends = "", .content = "labels"}) {}

  void read_header(const Hdf5File& file, const std::string& samples, DatasetHeader& h) const override {
    read_classes(file, h.images[0], samples, h);
  }
  std::string identity_text(const DatasetHeader& h) const override { return str(" classes ", h.classes); }

  void open(const std::shared_ptr<const Hdf5File>& file, int64_t, const std::string& sample,
            DatasetFile& out) const override {
    out.labels = read_labels(stored_rows(file, "labels"), out.header, sample);
  }
  void cut(DatasetFile& file, int64_t samples) const override { cut_labels(file, samples); }
  std::unique_ptr<TargetCopy> copy(Hdf5File&, const NewDataset&) const override {
    return std::make_unique<LabelCopy>();
  }
  void fit(SchemaFit& fit) const override { fit.fit_labels(); }

  void add_to(DataSpec& spec, const TensorSpec&) const override {
    spec.tensors.push_back({std::string(kLabels), DType::kInt32, {}});
  }
  void write(const DatasetFile& file, int64_t row, void* to) const override {
    *static_cast<int32_t*>(to) = file.labels[static_cast<size_t>(row)];
  }

  double compared(const DatasetFile& file, int64_t row) const override {
    return static_cast<double>(file.labels[static_cast<size_t>(row)]);
  }
  void show(const DatasetFile& file, int64_t index, ByteImage&, ShownImage& out) const override {
    const DatasetHeader& h = file.header;
    out.label = file.labels[static_cast<size_t>(index)];
    if (!h.class_names.empty()) out.class_name = h.class_names[static_cast<size_t>(out.label)];
  }
  std::string shown(const ShownImage& image, JsonObject& line) const override {
    const std::string label = image.class_name.empty() ? str(image.label) : image.class_name;
    line.insert(line.end(), {{"label", image.label}, {"class", label}});
    return str(", label ", label);
  }
};

}  // namespace

const SampleTarget& label_target() {
  static const LabelTarget target;
  return target;
}

void write_labels(Hdf5File& file, const std::vector<int32_t>& labels, DatasetHeader& header) {
  header.label_hashes = write_list(file, "labels", StoredType::kInt32, labels);
}

}  // namespace lockstep
