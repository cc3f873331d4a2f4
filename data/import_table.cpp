#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/json.h"
#include "core/io/pending_file.h"
#include "data/channel_sums.h"
#include "data/csv.h"
#include "data/dataset_file.h"
#include "data/import.h"
#include "data/label_index.h"

namespace lockstep {
namespace {

bool is_missing(const std::string& cell) {
  return cell.empty() || cell == "NA" || cell == "N/A" || cell == "NaN" || cell == "nan" || cell == "null";
}

// The number that a cell is, spaces around it aside; nothing where it is none.
std::optional<double> number_in(std::string_view cell) {
  const size_t begin = cell.find_first_not_of(' ');
  if (begin == cell.npos) return std::nullopt;
  cell = cell.substr(begin, cell.find_last_not_of(' ') - begin + 1);
  if (cell.size() > 1 && cell[0] == '+' && cell[1] != '-') cell.remove_prefix(1);
  double value = 0;
  const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
  if (end != cell.data() + cell.size()) return std::nullopt;
  return error == std::errc() ? value : std::numeric_limits<double>::infinity();
}

// What the first pass finds out of a column. It is one of numbers until a cell is none.
struct Column {
  std::string name;
  bool used = true, categories = false;
  int64_t first_line = 0;  // of the cell that makes it one of categories
  int64_t missing = 0, missing_line = 0;
  FeatureMoments moments;
  std::set<std::string> texts;  // numbers' too, as long as there are few: the column may yet turn out as categories
  std::unordered_map<std::string, int64_t> places;  // of categories: the place of each text in their order
  bool too_many = false;
  int64_t feature = 0;  // its first

  int64_t features() const { return categories ? static_cast<int64_t>(texts.size()) : 1; }
};

class TableImport {
 public:
  TableImport(const std::string& path, const TableOptions& options, const ImportOptions& import)
      : path_(path), options_(options), import_(import) {
    CsvReader rows(path, csv_separator(path));
    std::vector<std::string> cells;
    require(rows.next(cells), ExitCode::kBadData, path, ": is empty; the first row names the columns");
    name_columns(cells);
    while (rows.next(cells)) {
      look_at(rows, cells);
      if (count_ % 1024 == 0) progress(rows.bytes_read() / 2, rows.size());
    }
    require(count_ > 0, ExitCode::kBadData, path, ": has no rows below the names of the columns");
    conclude();
  }

  void write(Hdf5File& file, DatasetHeader& header) {
    header.kind = DataKind::kTable;
    header.images = {count_, features_};
    header.class_names = class_names_;
    header.classes = static_cast<int64_t>(class_names_.size());
    header.columns = described();
    std::vector<float> row(static_cast<size_t>(features_));
    ChunkWriter writer(file, "features", StoredType::kFloat32, header.images, images_per_chunk(4 * features_));
    std::vector<int32_t> labels;
    CsvReader rows(path_, csv_separator(path_));
    std::vector<std::string> cells;
    rows.next(cells);
    while (rows.next(cells)) {
      const auto label = classes_.find(cells[label_]);
      const bool same = label != classes_.end() && static_cast<int64_t>(labels.size()) < count_ && fill(cells, row);
      require(same, ExitCode::kBadData, path_, ":", rows.line(), ": changed during the import");
      labels.push_back(label->second);
      writer.append(row.data(), 1);
      if (labels.size() % 1024 == 0) progress((rows.size() + rows.bytes_read()) / 2, rows.size());
    }
    require(static_cast<int64_t>(labels.size()) == count_, ExitCode::kBadData, path_, ": changed during the import");
    warn_of_label_order(path_, labels, header.classes);
    header.hashes = writer.finish();
    header.label_hashes = write_labels(file, labels);
    for (const Column& c : columns_) {
      if (!c.used) continue;
      header.mean.resize(header.mean.size() + static_cast<size_t>(c.features()), c.categories ? 0.0 : c.moments.mean);
      header.stddev.resize(header.mean.size(), c.categories ? 1.0 : c.moments.scale());
    }
  }

 private:
  void progress(int64_t done, int64_t total) const {
    if (import_.progress) import_.progress(done, total);
  }

  size_t column(const std::string& name) const {
    const auto found = std::find_if(columns_.begin(), columns_.end(), [&](const Column& c) { return c.name == name; });
    require(found != columns_.end(), ExitCode::kBadData, path_, ":1: has no column '", name, "'");
    return static_cast<size_t>(found - columns_.begin());
  }

  void name_columns(const std::vector<std::string>& names) {
    std::set<std::string> seen;
    for (const std::string& name : names) {
      require(!name.empty(), ExitCode::kBadData, path_, ":1: column ", columns_.size() + 1, " has no name");
      require(seen.insert(name).second, ExitCode::kBadData, path_, ":1: has two columns '", name, "'");
      columns_.emplace_back().name = name;
    }
    label_ = column(options_.label);
    columns_[label_].used = false;
    for (const std::string& name : options_.leave_out) columns_[column(name)].used = false;
    for (const std::string& name : options_.categories) columns_[column(name)].categories = true;
  }

  void look_at(const CsvReader& rows, const std::vector<std::string>& cells) {
    const auto place = [&](const Column& c) { return cat(path_, ":", rows.line(), ": column '", c.name, "' "); };
    ++count_;
    require(!is_missing(cells[label_]), ExitCode::kBadData, place(columns_[label_]), "has no label");
    labels_.insert(cells[label_]);
    require(static_cast<int64_t>(labels_.size()) <= kMostClasses, ExitCode::kBadData, place(columns_[label_]),
            "has more than ", kMostClasses, " different labels");
    for (size_t i = 0; i < columns_.size(); ++i) {
      Column& c = columns_[i];
      if (!c.used) continue;
      if (is_missing(cells[i])) {
        require(options_.fill_missing, ExitCode::kBadData, place(c),
                "has no value; --fill-missing fills such cells, --leave-out leaves the column out");
        ++c.missing;
        continue;
      }
      const std::optional<double> number = number_in(cells[i]);
      if (!number && !c.categories) c.categories = true, c.first_line = rows.line();
      if (static_cast<int64_t>(c.texts.size()) < kMostFeatures) c.texts.insert(cells[i]);
      else if (!c.texts.contains(cells[i])) c.too_many = true;
      if (c.categories) {
        require(!c.too_many, ExitCode::kBadData, place(c), "has more than ", kMostFeatures, " different values",
                c.first_line > 0 ? cat(" and is no column of numbers because of line ", c.first_line) : "",
                "; --leave-out leaves it out");
        continue;
      }
      const double value = number.value_or(0);
      require(std::abs(value) <= std::numeric_limits<float>::max(), ExitCode::kBadData, place(c), "holds '", cells[i],
              "', which is not finite in 32 bits");
      c.moments.add(value);
    }
  }

  void conclude() {
    classes_ = index_of_labels(labels_, cat(path_, ": column '", options_.label, "'"), class_names_);
    for (Column& c : columns_) {
      if (!c.used) continue;
      if (c.categories && c.missing > 0) c.texts.insert("");
      require(c.categories || c.moments.count > 0, ExitCode::kBadData, path_, ": column '", c.name,
              "' has no value in any row; --leave-out leaves it out");
      c.feature = features_;
      features_ += c.features();
      if (c.categories)
        for (const std::string& text : c.texts) c.places.emplace(text, c.places.size());
      if (c.missing > 0)
        log_warning(cat(path_, ": column '", c.name, "': ", c.missing, " of ", count_,
                        " values are missing and become ",
                        c.categories ? std::string("a category of their own") : cat("the mean, ", c.moments.mean)));
    }
    require(features_ > 0, ExitCode::kBadData, path_, ": has no column beside '", options_.label, "'");
    require(features_ <= kMostFeatures, ExitCode::kBadData, path_, ": makes ", features_, " features; at most ",
            kMostFeatures, " are possible; --leave-out leaves columns out");
  }

  // False where a cell is not as the first pass found it.
  bool fill(const std::vector<std::string>& cells, std::vector<float>& row) const {
    std::fill(row.begin(), row.end(), 0.0f);
    for (size_t i = 0; i < columns_.size(); ++i) {
      const Column& c = columns_[i];
      if (!c.used) continue;
      float* to = row.data() + c.feature;
      if (c.categories) {
        const auto at = c.places.find(is_missing(cells[i]) ? "" : cells[i]);
        if (at == c.places.end()) return false;
        to[at->second] = 1;
      } else {
        const std::optional<double> value = is_missing(cells[i]) ? c.moments.mean : number_in(cells[i]);
        if (!value || std::abs(*value) > std::numeric_limits<float>::max()) return false;
        *to = static_cast<float>(*value);
      }
    }
    return true;
  }

  std::string described() const {
    std::vector<JsonObject> out;
    for (const Column& c : columns_) {
      if (!c.used) continue;
      JsonObject o{{"name", c.name}, {"type", c.categories ? "category" : "number"}, {"missing", c.missing}};
      if (c.categories) o.emplace_back("values", json_array(std::vector<JsonValue>(c.texts.begin(), c.texts.end())));
      out.push_back(std::move(o));
    }
    std::string text = json_array(out).text;
    std::erase(text, '\n');  // those between values; within a text they are escaped
    return text;
  }

  std::string path_;
  TableOptions options_;
  const ImportOptions& import_;
  std::vector<Column> columns_;
  size_t label_ = 0;
  std::set<std::string> labels_;
  std::vector<std::string> class_names_;
  std::map<std::string, int32_t> classes_;
  int64_t count_ = 0, features_ = 0;
};

}  // namespace

void import_csv(const std::string& table, const std::string& output, const TableOptions& columns,
                const ImportOptions& options) {
  PendingFile pending(output, options.force);
  TableImport import(table, columns, options);
  Hdf5File file = Hdf5File::create(pending.temporary());
  DatasetHeader header;
  import.write(file, header);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

}  // namespace lockstep
