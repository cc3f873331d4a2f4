#include "data/samples/kinds/labelled.h"

#include <algorithm>
#include <cmath>

#include "core/base/error.h"
#include "core/base/escape.h"
#include "core/base/text_table.h"
#include "data/samples/report_parts.h"
#include "data/samples/schema.h"

namespace lockstep {
namespace {

constexpr int64_t kMostRowsCompared = 1 << 24;  // so that their hashes and indices take 256 MiB at most
constexpr size_t kRepeatsTold = 5;
constexpr size_t kColumnsPrinted = 40, kCategoriesPrinted = 10, kStatisticsPrinted = 16;
constexpr int kDigitsPrinted = 6;

// The target of a file of this kind: the last that is there, labels where there is none.
TargetKind target_in(const Hdf5File& file, bool has_pixels) {
  TargetKind out = TargetKind::kLabels;
  for (size_t i = 0; i < sample_targets().size(); ++i) {
    const SampleTarget::Words& words = sample_targets()[i]->words();
    if ((has_pixels || !words.needs_pixels) && file.has(words.dataset)) out = static_cast<TargetKind>(i);
  }
  return out;
}

std::string sample_text(const Shape& images) {
  Shape out;
  for (int i = 1; i < images.rank(); ++i) out.push_back(images[i]);
  return to_text(out);
}

}  // namespace

void LabelledKind::read_header(const Hdf5File& file, const std::string& stored, DatasetHeader& h) const {
  const std::string &path = file.path(), &rows = words().rows, &each = words().value;
  read_rows(file, stored, h);
  h.target = target_in(file, has_pixels());
  sample_target(h.target).read_header(file, words().samples, h);
  read_weights_header(file, h.images[0], words().samples, h);
  h.mean = file.doubles_attribute(rows, "mean");
  h.stddev = file.doubles_attribute(rows, "std");
  if (!has_pixels() && file.has_attribute(rows, "offset")) {
    h.offset = file.doubles_attribute(rows, "offset");
    require(h.offset.size() == h.mean.size(), ExitCode::kBadData, path, ": attribute 'offset' of dataset '", rows,
            "' has ", h.offset.size(), " values; expected one per ", each, " (", h.mean.size(), ")");
  }
  require(static_cast<int64_t>(h.mean.size()) == h.images.back() && h.mean.size() == h.stddev.size(),
          ExitCode::kBadData, path, ": attributes 'mean' and 'std' of dataset '", rows, "' have ", h.mean.size(),
          " and ", h.stddev.size(), " values; expected one per ", each, " (", h.images.back(), ")");
  for (size_t c = 0; c < h.mean.size(); ++c)
    require(normalises(h.centre(c), h.stddev[c]), ExitCode::kBadData, path, ": dataset '", rows, "', ", each, " ", c,
            ": mean ", h.mean[c], " and std ", h.stddev[c],
            " do not give finite samples; both must be finite, and std above zero");
}

void LabelledKind::write_header(Hdf5File& file, const DatasetHeader& h) const {
  const SampleTarget& target = sample_target(h.target);
  const std::string& rows = words().rows;
  target.write_attributes(file, h);
  file.set_attribute(rows, "mean", h.mean);
  file.set_attribute(rows, "std", h.stddev);
  if (!h.offset.empty()) file.set_attribute(rows, "offset", h.offset);
  write_classes(file, h);
  write_rows(file, h);
  if (!h.target_parts.hashes.empty()) write_hashes(file, target.words().ends, h.target_parts.hashes);
  write_weights_header(file, h);
  write_text(file, "columns", h.columns);
}

void LabelledKind::hash(const DatasetHeader& h, Hasher128& hasher) const {
  const SampleTarget& target = sample_target(h.target);
  auto add = [&](const auto& list) { hasher.update(list.data(), list.size() * sizeof list[0]); };
  add(identity_text(h));
  add(target.identity_text(h));
  add(std::string(h.weight_hashes.empty() ? "\n" : " weights\n"));
  add(h.mean);
  add(h.stddev);
  add(h.offset);
  add(h.hashes);
  add(h.files.hashes);
  add(h.label_hashes);
  add(h.target_parts.hashes);
  target.hash(h, hasher);
  add(h.weight_hashes);
}

std::vector<StoredList> LabelledKind::lists(const DatasetHeader& h) const {
  const SampleTarget::Words& target = sample_target(h.target).words();
  return {{"ends", &h.files.hashes},
          {target.dataset, &h.label_hashes},
          {target.ends, &h.target_parts.hashes},
          {std::string(kSampleWeights), &h.weight_hashes}};
}

void LabelledKind::open_rows(RowSource rows, int64_t memory_bytes, DatasetFile& out) const {
  out.rows = std::make_unique<StoredRows>(std::move(rows), out.header.hashes, memory_bytes, row_check(out));
}

void LabelledKind::open(const std::shared_ptr<const Hdf5File>& file, int64_t memory_bytes, DatasetFile& out) const {
  const SampleTarget& target = sample_target(out.header.target);
  const int64_t for_targets = target.memory_share(out.header, memory_bytes);
  open_rows(stored_rows(file, words().rows), memory_bytes - for_targets, out);
  open_ends(file, out);
  target.open(file, for_targets, words().sample, out);
  open_weights(file, words().sample, out);
}

void open_labelled(RowSource rows, RowSource labels, int64_t memory_bytes, DatasetFile& out) {
  const auto& kind = dynamic_cast<const LabelledKind&>(sample_kind(out.header.kind));
  kind.open_rows(std::move(rows), memory_bytes, out);
  out.labels = read_labels(std::move(labels), out.header, kind.words().sample);
}

void LabelledKind::cut(DatasetFile& file, int64_t samples) const {
  DatasetHeader& h = file.header;
  h.hashes = hashes_of_first(*file.rows, h.hashes, h.files.of(IndexRange{0, samples}).end, rows_per_chunk(h));
  h.images[0] = samples;
  sample_target(h.target).cut(file, samples);
  cut_weights(file, samples);
  if (!h.files.ends.empty()) cut_ends(h.files, samples);
}

std::string LabelledKind::difference(const DatasetHeader& other, const DatasetHeader& first) const {
  if (other.encoded != first.encoded)
    return "one holds images as PNG or JPEG files, the other as pixels: import both with --keep-encoded";
  const SampleTarget &target = sample_target(other.target), &there = sample_target(first.target);
  if (&target != &there) return str("one has ", target.words().content, ", the other ", there.words().content);
  const std::string of_targets = target.difference(other, first);
  if (!of_targets.empty()) return of_targets;
  Shape a = other.images, b = first.images;
  a[0] = b[0] = 0;
  if (a == b) return "";
  return str("its samples are ", sample_text(other.images), ", those of the first ", sample_text(first.images));
}

uint64_t LabelledKind::hash_of(const DatasetFile& file, int64_t sample) const {
  uint64_t out = 0;
  file.rows->visit({sample, sample + 1}, [&](IndexRange, const uint8_t* bytes) {
    out = hash64(bytes, static_cast<size_t>(file.rows->row_bytes()));
  });
  return out;
}

// Reads every row or image, and finds those that are there twice.
void LabelledKind::inspect(const DatasetFile& file, DatasetReport& report, const ProgressCallback& progress) const {
  const DatasetHeader& h = file.header;
  const SampleTarget& target = sample_target(h.target);
  const int64_t count = h.images[0];
  report.count = count;
  for (int i = 1; i < h.images.rank(); ++i) report.image_shape.push_back(h.images[i]);
  report.columns = h.columns;
  report.mean = h.mean, report.stddev = h.stddev;
  report.target = h.target;
  const bool compares = count <= kMostRowsCompared;
  std::vector<std::pair<uint64_t, int64_t>> hashes;  // and index
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t hash = hash_of(file, i);
    if (compares) hashes.emplace_back(hash, i);
    if (progress && (i % 256 == 255 || i + 1 == count)) progress(i + 1, count);
  }
  report.duplicates = compares ? 0 : -1;
  std::sort(hashes.begin(), hashes.end());
  for (size_t i = 1, first = 0; i < hashes.size(); ++i) {
    if (hashes[i].first != hashes[first].first) {
      first = i;
      continue;
    }
    ++report.duplicates;
    report.contradictions += target.compared(file, hashes[i].second) != target.compared(file, hashes[first].second);
    report.repeats.emplace_back(hashes[i].second, hashes[first].second);
    std::sort(report.repeats.begin(), report.repeats.end());
    if (report.repeats.size() > kRepeatsTold) report.repeats.pop_back();
  }
  target.inspect(file, report);
}

namespace {

std::string statistics_text(const DatasetReport& r) {
  const auto printed = [](std::vector<double> values) {
    values.resize(std::min(values.size(), kStatisticsPrinted + 1));  // joined() prints "..." for the last
    for (double& v : values) v = significant(v, kDigitsPrinted);
    return joined(values, kStatisticsPrinted);
  };
  return str("mean: ", printed(r.mean), "\nstd: ", printed(r.stddev), "\n");
}

// "Bonn, Kiel, Ulm and 4 more"
std::string categories_text(const std::vector<std::string>& values) {
  std::string out;
  for (size_t i = 0; i < values.size() && i < kCategoriesPrinted; ++i) {
    out += (i ? ", " : "") + escaped(values[i], Lines::kEscape);
  }
  return values.size() > kCategoriesPrinted ? str(out, " and ", values.size() - kCategoriesPrinted, " more") : out;
}

// One line per column: name, type, mean and standard deviation or categories, missing cells. Empty where the columns do
// not describe the features, as in a file that another program wrote.
std::string columns_text(const DatasetReport& r) {
  std::vector<TableColumn> columns;
  try {
    columns = parse_columns(r.columns, "");
  } catch (const Error&) {
    return {};
  }
  int64_t features = 0;
  for (const TableColumn& c : columns) features += c.features();
  if (features != static_cast<int64_t>(r.mean.size()) || r.mean.size() != r.stddev.size()) return {};
  size_t widest = 0, feature = 0;
  for (size_t i = 0; i < columns.size() && i < kColumnsPrinted; ++i) {
    widest = std::max(widest, lockstep::columns(escaped(columns[i].name, Lines::kEscape)));
  }
  std::string out = "columns:\n";
  for (size_t i = 0; i < columns.size() && i < kColumnsPrinted; ++i) {
    const TableColumn& c = columns[i];
    const std::string name = escaped(c.name, Lines::kEscape);
    out += str("  ", name, std::string(widest - lockstep::columns(name) + 2, ' '));
    switch (c.type) {
      case TableColumn::Type::kTarget: out += "target"; break;
      case TableColumn::Type::kCategory: out += "category  " + categories_text(c.values); break;
      case TableColumn::Type::kNumber:
        out += str(c.date ? "date      mean " : "number    mean ", significant(r.mean[feature], kDigitsPrinted),
                   ", std ", significant(r.stddev[feature], kDigitsPrinted), c.date ? " days" : "");
        break;
    }
    out += c.missing > 0 ? str(", ", c.missing, " missing\n") : "\n";
    feature += static_cast<size_t>(c.features());
  }
  if (columns.size() <= kColumnsPrinted) return out;
  return str(out, "  and ", columns.size() - kColumnsPrinted, " more: lockstep data inspect --json lists all\n");
}

}  // namespace

std::string LabelledKind::text(const DatasetReport& r) const {
  std::string out = str("kind: ", words().name, "\n", words().samples, ": ", r.count, "\n", shape_text(r), "\n",
                        sample_target(r.target).text(r, words().samples), "\n");
  const std::string columns = r.columns.empty() ? std::string() : columns_text(r);
  out += columns.empty() ? statistics_text(r) : columns;
  if (columns.empty() && !r.columns.empty()) out += str("columns: ", escaped(r.columns, Lines::kEscape), "\n");
  return out + duplicates_text(r) + "\n";
}

JsonObject LabelledKind::json(const DatasetReport& r) const {
  const SampleTarget& target = sample_target(r.target);
  const std::string& counted = target.words().counted.empty() ? words().samples : target.words().counted;
  JsonObject out{{"kind", words().name},
                 {words().samples, r.count},
                 {"shape", json_list(r.image_shape)},
                 {"classes", r.classes},
                 {counted + "_per_class", json_list(r.per_class)},
                 {"class_names", json_list(r.class_names)},
                 {"mean", json_list(r.mean)},
                 {"std", json_list(r.stddev)}};
  const auto append = [&](const JsonObject& more) { out.insert(out.end(), more.begin(), more.end()); };
  append(target.counts(r));
  std::vector<JsonValue> repeats;
  for (const auto& [index, first] : r.repeats) repeats.emplace_back(json_array(std::vector<JsonValue>{index, first}));
  append({{"duplicates", duplicates_json(r)}, {"contradictions", r.contradictions}, {"repeats", json_array(repeats)}});
  append(target.range(r));
  if (!r.columns.empty()) {
    const bool whole = parse_json_array(r.columns) && r.columns.find('\n') == std::string::npos;
    out.emplace_back("columns", whole ? JsonValue(JsonText{r.columns}) : JsonValue(r.columns));
  }
  return out;
}

namespace {

Shape rows_shape(const DatasetHeader& h, int64_t rows) {
  Shape out = h.encoded ? Shape{0} : h.images;
  out[0] = rows;
  return out;
}

}  // namespace

LabelledCopy::LabelledCopy(NewDataset d, StoredType type)
    : pending_(d.path, d.replace),
      file_(Hdf5File::create(pending_.dataset())),
      targets_(sample_target(d.header.target).copy(file_, d)),
      header_(std::move(d.header)),
      rows_(file_, sample_kind(header_.kind).words().rows, type, rows_shape(header_, d.rows), rows_per_chunk(header_)),
      measures_(d.measure) {
  header_.images[0] = d.samples;
}

void LabelledCopy::append(const std::shared_ptr<const DatasetFile>& from, IndexRange samples,
                          const std::vector<int32_t>& labels) {
  const DatasetFile& file = *from;
  targets_->append(file, samples, labels);
  for (int64_t i = samples.begin; i < samples.end; ++i) weights_.push_back(file.weight_of(i));
  for (int64_t i = samples.begin; header_.encoded && i < samples.end; ++i) parts_.add(file.header.files.of(i).size());
  file.rows->visit(file.header.files.of(samples), [&](IndexRange piece, const uint8_t* bytes) {
    bytes = moved(file.header, bytes, piece.size());
    rows_.append(bytes, piece.size());
    if (measures_ && !header_.encoded) measure(bytes, piece.size());
  });
  if (measures_ && header_.encoded) measure_encoded(file, samples);
}

void LabelledCopy::close() {
  header_.hashes = rows_.finish();
  if (measures_) set_moments(header_);
  targets_->close(file_, measures_, header_);
  write_weights(file_, weights_, header_);
  if (header_.encoded) header_.files.hashes = write_ends(file_, "ends", parts_.ends);
  write_dataset_header(file_, header_);
  file_.close();
}

}  // namespace lockstep
