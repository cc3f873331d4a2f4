// A number for each sample, which a regression predicts: fp32, normalised.
#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/text_table.h"
#include "data/samples/channel_sums.h"
#include "data/samples/dataset_file.h"
#include "data/samples/header_parts.h"
#include "data/samples/sample_target.h"
#include "data/samples/schema.h"

namespace lockstep {
namespace {

std::vector<float> read_numbers(std::shared_ptr<const Hdf5File> file, const DatasetHeader& h) {
  auto check_numbers = [path = file->path(), mean = h.target_centre(), stddev = h.target_std](IndexRange rows,
                                                                                              const uint8_t* bytes) {
    const auto* values = reinterpret_cast<const float*>(bytes);
    for (int64_t i = 0; i < rows.size(); ++i)
      require(std::isfinite(static_cast<float>((values[i] - mean) / stddev)), ExitCode::kBadData, path,
              ": the target of row ", rows.begin + i, " is ", values[i],
              ", which cannot be normalised; import it again");
  };
  return read_list<float>(stored_rows(std::move(file), "targets"), h.label_hashes, check_numbers);
}

class NumberCopy final : public TargetCopy {
 public:
  explicit NumberCopy(double offset) : offset_(offset) {}
  void append(const DatasetFile& file, IndexRange samples, const std::vector<int32_t>&) override {
    for (int64_t i = samples.begin; i < samples.end; ++i)
      numbers_.push_back(
          static_cast<float>(file.numbers[static_cast<size_t>(i)] + (file.header.target_offset - offset_)));
  }
  void close(Hdf5File& file, bool measures, DatasetHeader& h) override {
    FeatureMoments moments;
    for (float number : numbers_) moments.add(number);
    if (measures) h.target_mean = moments.mean + offset_, h.target_std = moments.scale();
    write_stored_numbers(file, numbers_, h);
  }

 private:
  double offset_;  // of the numbers, which are stored less that
  std::vector<float> numbers_;
};

class NumberTarget final : public SampleTarget {
 public:
  NumberTarget()
      : SampleTarget({.name = "numbers", .dataset = "targets", .ends = "", .content = "numbers to predict"}) {}

  void read_header(const Hdf5File& file, const std::string& samples, DatasetHeader& h) const override {
    require_list(file, "targets", StoredType::kFloat32, h.images[0], samples);
    const auto mean = file.doubles_attribute("targets", "mean"), stddev = file.doubles_attribute("targets", "std");
    const bool good = mean.size() == 1 && stddev.size() == 1 && normalises(mean[0], stddev[0]);
    require(good, ExitCode::kBadData, file.path(), ": attributes 'mean' and 'std' of dataset 'targets' ",
            "do not give finite targets; both must be one finite number, and std above zero");
    h.target_mean = mean[0], h.target_std = stddev[0];
    h.label_hashes = read_hashes(file, "targets");
    if (!file.has_attribute("targets", "offset"))
      return warn_of_old_numbers(file.path(), "the targets", h.target_mean, h.target_std);
    const auto offset = file.doubles_attribute("targets", "offset");
    require(offset.size() == 1 && normalises(mean[0] - offset[0], stddev[0]), ExitCode::kBadData, file.path(),
            ": attribute 'offset' of dataset 'targets' is no finite number");
    h.target_offset = offset[0];
  }
  void write_attributes(Hdf5File& file, const DatasetHeader& h) const override {
    file.set_attribute("targets", "mean", std::vector<double>{h.target_mean});
    file.set_attribute("targets", "std", std::vector<double>{h.target_std});
    if (h.target_offset != 0) file.set_attribute("targets", "offset", std::vector<double>{h.target_offset});
  }
  bool has_classes() const override { return false; }
  std::string identity_text(const DatasetHeader&) const override { return " targets"; }
  void hash(const DatasetHeader& h, Hasher128& hasher) const override {
    const double moments[] = {h.target_mean, h.target_std};
    hasher.update(moments, sizeof moments);
    if (h.target_offset != 0) hasher.update(&h.target_offset, sizeof h.target_offset);
  }

  void open(const std::shared_ptr<const Hdf5File>& file, int64_t, const std::string&, DatasetFile& out) const override {
    out.numbers = read_numbers(file, out.header);
  }
  void cut(DatasetFile& file, int64_t samples) const override {
    file.numbers.resize(static_cast<size_t>(samples));
    file.header.label_hashes = hashes_of_list(file.numbers);
  }
  std::unique_ptr<TargetCopy> copy(Hdf5File&, const NewDataset& d) const override {
    return std::make_unique<NumberCopy>(d.header.target_offset);
  }
  void fit(SchemaFit& fit) const override {
    fit.header.target_mean = fit.like.schema.target_mean, fit.header.target_std = fit.like.schema.target_std;
  }

  void add_to(DataSpec& spec, const TensorSpec&) const override {
    spec.tensors.push_back({std::string(kTargets), DType::kFloat32, {}});
  }
  void write(const DatasetFile& file, int64_t row, void* to) const override {
    *static_cast<float*>(to) = static_cast<float>(*number(file, row));
  }
  std::optional<double> number(const DatasetFile& file, int64_t row) const override {
    const DatasetHeader& h = file.header;
    return (file.numbers[static_cast<size_t>(row)] - h.target_centre()) / h.target_std;
  }

  void inspect(const DatasetFile& file, DatasetReport& report) const override {
    const DatasetHeader& h = file.header;
    const auto [least, most] = std::minmax_element(file.numbers.begin(), file.numbers.end());
    report.target_least = *least + h.target_offset, report.target_most = *most + h.target_offset;
    report.target_mean = h.target_mean, report.target_std = h.target_std;
  }
  double compared(const DatasetFile& file, int64_t row) const override {
    return double{file.numbers[static_cast<size_t>(row)]};
  }
  std::string text(const DatasetReport& r, const std::string&) const override {
    const auto printed = [](double value) { return significant(value, 6); };
    return str("targets: ", printed(r.target_least), " to ", printed(r.target_most), ", mean ", printed(r.target_mean),
               ", std ", printed(r.target_std));
  }
  JsonObject range(const DatasetReport& r) const override {
    return {{"target_least", r.target_least},
            {"target_most", r.target_most},
            {"target_mean", r.target_mean},
            {"target_std", r.target_std}};
  }
  void show(const DatasetFile& file, int64_t index, ByteImage&, ShownImage& out) const override {
    out.number = file.numbers[static_cast<size_t>(index)] + file.header.target_offset;
  }
  std::string shown(const ShownImage& image, JsonObject& line) const override {
    line.emplace_back("target", image.number);
    return str(", target ", image.number);
  }
};

}  // namespace

const SampleTarget& number_target() {
  static const NumberTarget target;
  return target;
}

namespace {

// The most by which 32 bits change a number less the offset.
double lost(const std::vector<double>& numbers, double offset) {
  double most = 0;
  for (const double value : numbers)
    most = std::max(most, std::abs((value - offset) - static_cast<double>(static_cast<float>(value - offset))));
  return most;
}

}  // namespace

void write_numbers(Hdf5File& file, const std::vector<double>& numbers, DatasetHeader& header, const DataSchema* like) {
  FeatureMoments moments;
  for (double value : numbers) moments.add(value);
  moments.settle();
  header.target_mean = like ? like->target_mean : moments.mean;
  header.target_std = like ? like->target_std : moments.scale();
  header.target_offset = moments.offset(header.target_mean, header.target_std);
  // Numbers that another mean and deviation normalise may be far from that mean and near to each other: then their own
  // mean keeps more of their differences.
  if (like && lost(numbers, header.target_offset) > 0x1p-20 * moments.scale() &&
      lost(numbers, moments.mean) < lost(numbers, header.target_offset) / 2)
    header.target_offset = moments.mean;
  if (moments.beyond_doubles()) warn_of_lost_bits(file.path(), "the targets", moments.largest, header.target_std);
  std::vector<float> stored;
  for (double value : numbers) stored.push_back(static_cast<float>(value - header.target_offset));
  write_stored_numbers(file, stored, header);
}

void write_stored_numbers(Hdf5File& file, const std::vector<float>& numbers, DatasetHeader& header) {
  header.target = TargetKind::kNumbers;
  header.label_hashes = write_list(file, "targets", StoredType::kFloat32, numbers);
}

}  // namespace lockstep
