// Rows of a table: numbers, normalised, of which a category has one for each of its values.
#include <algorithm>
#include <cmath>
#include <map>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/samples/channel_sums.h"
#include "data/samples/dataset_file.h"
#include "data/samples/kinds/labelled.h"
#include "data/samples/label_index.h"
#include "data/samples/schema.h"
#include "data/samples/table_dataset.h"

namespace lockstep {
namespace {

// A column of the file, and its first feature there.
struct StoredColumn {
  TableColumn column;
  int64_t feature;
};

std::map<std::string, StoredColumn> stored_columns(const std::vector<TableColumn>& here, const DatasetHeader& h,
                                                   const std::string& where) {
  std::map<std::string, StoredColumn> stored;
  int64_t features = 0;
  for (const TableColumn& c : here) {
    stored[c.name] = {c, features};
    features += c.features();
  }
  require(features == static_cast<int64_t>(h.mean.size()), ExitCode::kBadData, where,
          ": its 'columns' do not describe its features");
  return stored;
}

// Features in the order of other data, each with the file's own moments. A feature below 0 is 0 in every row.
class ChosenFeatures {
 public:
  ChosenFeatures(const DatasetHeader& h, std::vector<int64_t>& feature_of) : h_(h), feature_of_(feature_of) {}

  size_t size() const { return mean_.size(); }
  void take(int64_t feature) {
    feature_of_.push_back(feature);
    mean_.push_back(feature < 0 ? 0 : h_.mean[static_cast<size_t>(feature)]);
    stddev_.push_back(feature < 0 ? 1 : h_.stddev[static_cast<size_t>(feature)]);
    offset_.push_back(feature < 0 ? 0 : h_.offset_of(static_cast<size_t>(feature)));
  }
  void put_into(DatasetHeader& h) {
    h.mean = std::move(mean_), h.stddev = std::move(stddev_), h.offset = std::move(offset_);
  }

 private:
  const DatasetHeader& h_;
  std::vector<int64_t>& feature_of_;
  std::vector<double> mean_, stddev_, offset_;
};

// Takes the features of the category `ours` in the order of `theirs`.
void fit_category(const SchemaFit& fit, const StoredColumn& ours, const TableColumn& theirs, ChosenFeatures& chosen) {
  const LabelNumbers there(theirs.values);
  std::vector<int64_t> features(theirs.values.size(), -1);
  int64_t feature = ours.feature;
  for (const std::string& value : ours.column.values) {
    const int64_t at = there.find(value);
    if (at < 0)
      fit.refuse(value.empty() ? str("column '", theirs.name, "' has missing values, which are no category there")
                               : str("column '", theirs.name, "' holds '", value, "', which is none of its ",
                                     theirs.values.size(), " categories: ", SchemaFit::first_few(theirs.values)),
                 "");
    int64_t& to = features[static_cast<size_t>(at)];
    if (to >= 0)
      fit.refuse(str("column '", theirs.name, "' holds '", value, "' as two categories, which are one there: '",
                     theirs.values[static_cast<size_t>(at)], "'"),
                 str("import the table with --like ", fit.like.name));
    to = feature++;
  }
  for (int64_t from : features) chosen.take(from);
}

// The stored feature that each of the header's features becomes, found by the names of columns.
void fit_columns(SchemaFit& fit, std::vector<int64_t>& feature_of) {
  DatasetHeader& h = fit.header;
  const DataSchema& of = fit.like.schema;
  const std::string &where = fit.where, &name = fit.like.name;
  if (h.columns == of.columns) return;
  if (h.columns.empty() || of.columns.empty()) {
    log_warning(str(h.columns.empty() ? where : name, ": its features have no names; those of ", where,
                    " are taken for those of ", name, " in their order"));
    return;
  }
  const std::vector<TableColumn> here = parse_columns(h.columns, where), there = parse_columns(of.columns, name);
  if (here == there) return;
  const std::map<std::string, StoredColumn> stored = stored_columns(here, h, where);
  ChosenFeatures chosen(h, feature_of);
  const std::string again = str("import the table with --like ", name);
  for (const TableColumn& theirs : there) {
    if (theirs.type == TableColumn::Type::kTarget) continue;
    const auto at = stored.find(theirs.name);
    if (at == stored.end() || at->second.column.type == TableColumn::Type::kTarget)
      fit.refuse(str("it has no column '", theirs.name, "'"), "");
    const auto& [ours, feature] = at->second;
    const bool numbers = ours.type == TableColumn::Type::kNumber;
    if (ours.type != theirs.type)
      fit.refuse(
          str("column '", theirs.name, "' holds ", numbers ? "numbers, not categories" : "categories, not numbers"),
          again);
    const auto are = [](const TableColumn& c) {
      return c.date ? kDateKinds[static_cast<size_t>(c.date->kind.value_or(DateKind::kDate))] : "numbers";
    };
    const DateKind here_kind = ours.date ? ours.date->kind.value_or(DateKind::kDate) : DateKind::kDate,
                   there_kind = theirs.date ? theirs.date->kind.value_or(DateKind::kDate) : DateKind::kDate;
    if (ours.date.has_value() != theirs.date.has_value() || !joined(here_kind, there_kind))
      fit.refuse(str("column '", theirs.name, "' holds ", are(ours), ", not ", are(theirs)), again);
    if (!numbers) {
      fit_category(fit, at->second, theirs, chosen);
      continue;
    }
    if (ours.missing > 0 && !of.mean.empty() && h.mean[static_cast<size_t>(feature)] != of.mean[chosen.size()])
      log_warning(str(where, ": column '", ours.name, "': ", ours.missing,
                      " missing values were filled with this file's own mean; with ", name, "'s, ", again));
    chosen.take(feature);
  }
  chosen.put_into(h);
  h.columns = of.columns;
}

class TableCopy final : public LabelledCopy {
 public:
  explicit TableCopy(NewDataset d)
      : LabelledCopy(std::move(d), StoredType::kFloat32), moments_(static_cast<size_t>(header().images.back())) {}

 protected:
  // Rows whose features are stored less other offsets than here.
  const uint8_t* moved(const DatasetHeader& from, const uint8_t* bytes, int64_t rows) override {
    if (header().offset == from.offset) return bytes;
    const auto columns = moments_.size();
    const auto* values = reinterpret_cast<const float*>(bytes);
    moved_.assign(values, values + static_cast<size_t>(rows) * columns);
    for (size_t i = 0; i < moved_.size(); ++i)
      moved_[i] = static_cast<float>(moved_[i] + (from.offset_of(i % columns) - header().offset_of(i % columns)));
    return reinterpret_cast<const uint8_t*>(moved_.data());
  }
  void measure(const uint8_t* bytes, int64_t rows) override {
    const auto columns = moments_.size();
    const auto* values = reinterpret_cast<const float*>(bytes);
    for (size_t i = 0; i < static_cast<size_t>(rows) * columns; ++i) moments_[i % columns].add(values[i]);
  }
  void set_moments(DatasetHeader& h) const override {
    for (size_t c = 0; c < moments_.size(); ++c)
      if (h.mean[c] != 0 || h.stddev[c] != 1)  // else a category's, which stays as it is
        h.mean[c] = moments_[c].mean + h.offset_of(c), h.stddev[c] = moments_[c].scale();
  }

 private:
  std::vector<FeatureMoments> moments_;
  std::vector<float> moved_;
};

class TableKind final : public LabelledKind {
 public:
  TableKind()
      : LabelledKind({.name = "table",
                      .rows = "features",
                      .sample = "row",
                      .samples = "rows",
                      .content = "a table",
                      .value = "feature"}) {}

  int64_t rows_per_chunk(const DatasetHeader& h) const override { return images_per_chunk(4 * h.images[1]); }
  std::unique_ptr<SampleWriter> writer(NewDataset dataset) const override {
    return std::make_unique<TableCopy>(std::move(dataset));
  }
  void fit(SchemaFit& fit, DatasetFile* file) const override {
    if (file) fit_columns(fit, file->feature_of);
    fit.fit_statistics();
  }
  SampleParts parts(const std::shared_ptr<const DatasetFile>& file, const DataOptions& o) const override {
    return plain_parts(file->header.images[0], o,
                       [file](IndexRange part, PartUse) { return std::make_shared<TableDataset>(file, part); });
  }

 protected:
  void read_rows(const Hdf5File& file, const std::string&, DatasetHeader& h) const override {
    const Hdf5Info info = file.info("features");
    require(info.type == StoredType::kFloat32 && info.shape.rank() == 2 && info.shape.numel() > 0, ExitCode::kBadData,
            file.path(), ": dataset 'features' holds ", info.type, " of shape ", info.shape,
            "; expected float32 [count, features]");
    h.images = info.shape;
    if (file.has("columns")) h.columns = read_text(file, "columns");
  }
  std::string identity_text(const DatasetHeader& h) const override { return str("table ", h.images); }
  StoredRows::Check row_check(const DatasetFile& file) const override {
    const DatasetHeader& h = file.header;
    std::vector<double> centres;
    for (size_t c = 0; c < h.mean.size(); ++c) {
      centres.push_back(h.centre(c));
      warn_of_old_numbers(file.path, str("feature ", c), centres[c], h.stddev[c]);
    }
    return [path = file.path, columns = h.images[1], mean = std::move(centres), stddev = h.stddev](
               IndexRange rows, const uint8_t* bytes) {
      const auto* values = reinterpret_cast<const float*>(bytes);
      for (int64_t i = 0; i < rows.size() * columns; ++i) {
        const auto c = static_cast<size_t>(i % columns);
        require(std::isfinite(static_cast<float>((values[i] - mean[c]) / stddev[c])), ExitCode::kBadData, path,
                ": feature ", c, " of row ", rows.begin + i / columns, " is ", values[i],
                ", which cannot be normalised; import the table again");
      }
    };
  }
  std::string shape_text(const DatasetReport& r) const override { return str("features: ", r.image_shape[0]); }
};

}  // namespace

const SampleKind& table_kind() {
  static const TableKind kind;
  return kind;
}

}  // namespace lockstep
