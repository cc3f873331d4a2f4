#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/json.h"
#include "data/import/import.h"
#include "data/import/import_threads.h"
#include "data/import/in_order.h"
#include "data/import/tables/csv.h"
#include "data/import/tables/date_cell.h"
#include "data/import/tables/table_cells.h"
#include "data/import/tables/table_column.h"
#include "data/import/tables/table_import.h"
#include "data/import/tables/table_reader.h"
#include "data/samples/channel_sums.h"
#include "data/samples/dataset_file.h"
#include "data/samples/header_parts.h"
#include "data/samples/label_index.h"
#include "data/store/partial_output.h"
#include "data/store/same_pass.h"

namespace lockstep {
namespace {

// Some rows of the table, and what is made of them.
struct TableRows {
  struct Row {
    int64_t line;
    std::vector<std::string> cells;
    std::vector<bool> plain;  // of each cell, TableReader::is_number(); empty where no cell differs for it
    bool is_plain(size_t column) const { return !plain.empty() && plain[column]; }
  };
  std::vector<Row> rows;
  int64_t done = 0;                            // bytes of the table, as stored
  std::vector<std::optional<double>> numbers;  // the first pass: of each cell
  std::vector<uint64_t> stripped;              // likewise, where texts are taken off numbers
  std::vector<float> features;                 // the second pass: of each row; and its target
  std::vector<int32_t> labels;
  std::vector<double> targets;
};

constexpr size_t kRowBytesAtOnce = 256 << 10;
constexpr size_t kNoColumn = SIZE_MAX;

class TableImport {
  using Column = ImportedColumn;

 public:
  TableImport(const TableSource& source, const TableOptions& options, const ImportOptions& import)
      : source_(source),
        path_(source.name),
        options_(options),
        import_(import),
        threads_(import_threads(import)),
        form_{options.decimal_comma, options.thousands.value_or('\0'), options.strip},
        missing_(options.missing, form_) {
    require_readable(form_);
    const auto rows = source_.open();
    names_place_ = path_ + rows->names_place();
    name_columns(rows->names());
    if (!import.like) choose_columns();
    else take_columns_of(*import.like);
    ask_for_columns(*rows);
    in_order<TableRows>(
        threads_, [&](TableRows& some) { return next(*rows, some); }, [&](TableRows& some, int) { read_numbers(some); },
        [&](TableRows& some) {
          const std::optional<double>* numbers = some.numbers.data();
          for (const TableRows::Row& row : some.rows) look_at(row, numbers), numbers += columns_.size();
          take_stripped(some);
          progress(some.done / 2, rows->size());
        });
    require(count_ > 0, ExitCode::kBadData, path_, ": has no rows below the names of the columns");
    hash_ = rows->hash();
    conclude();
  }

  void write(Hdf5File& file, DatasetHeader& header) {
    header.kind = DataKind::kTable;
    header.images = {count_, features_};
    header.class_names = class_names_;
    header.classes = has_target() ? static_cast<int64_t>(class_names_.size()) : 1;
    header.columns =
        description(columns_, order_, regression() ? &columns_[target_] : nullptr, options_.missing, form_);
    int64_t done = 0;
    ChunkWriter writer(file, "features", StoredType::kFloat32, header.images, images_per_chunk(4 * features_));
    std::vector<int32_t> labels;
    std::vector<double> numbers;
    const auto rows = source_.open();
    ask_for_columns(*rows);
    in_order<TableRows>(
        threads_, [&](TableRows& some) { return next(*rows, some); }, [&](TableRows& some, int) { make(some); },
        [&](TableRows& some) {
          done += static_cast<int64_t>(some.rows.size());
          require_same_pass(done <= count_, path_);
          writer.append(some.features.data(), static_cast<int64_t>(some.rows.size()));
          labels.insert(labels.end(), some.labels.begin(), some.labels.end());
          numbers.insert(numbers.end(), some.targets.begin(), some.targets.end());
          progress((rows->size() + some.done) / 2, rows->size());
        });
    require_same_pass(done == count_ && rows->hash() == hash_, path_);
    header.hashes = writer.finish();
    if (regression()) {
      if (!import_.like)
        warn_of_number_order(path_, columns_[target_].name, numbers);  // what is like other data is seldom split
      write_numbers(file, numbers, header, import_.like ? &import_.like->schema : nullptr);
    } else {
      if (!import_.like) warn_of_label_order(path_, labels, header.classes);
      write_labels(file, labels, header);
    }
    write_weights(file, weights_, header);
    for (size_t i : order_) {
      const Column& c = columns_[i];
      header.mean.resize(header.mean.size() + static_cast<size_t>(c.features()), c.categories ? 0.0 : c.mean);
      header.stddev.resize(header.mean.size(), c.categories ? 1.0 : c.std);
      header.offset.resize(header.mean.size(), c.categories ? 0.0 : c.offset);
    }
    if (std::all_of(header.offset.begin(), header.offset.end(), [](double o) { return o == 0; })) header.offset.clear();
  }

 private:
  // The number that a cell is in its column.
  std::optional<double> number_of(const TableRows::Row& row, size_t column, uint64_t* stripped = nullptr) const {
    const Column& c = columns_[column];
    if (!c.date) return number_in(row.cells[column], row.is_plain(column) ? NumberForm() : form_, stripped);
    const std::optional<DateCell> date = date_in(row.cells[column], c.date->order);
    return date ? std::optional(date->days) : std::nullopt;
  }
  void read_numbers(TableRows& some) const {
    if (!form_.strip.empty()) some.stripped.resize(some.rows.size() * columns_.size());
    for (const TableRows::Row& row : some.rows)
      for (size_t i = 0; i < columns_.size(); ++i)
        some.numbers.push_back(
            number_of(row, i, some.stripped.empty() ? nullptr : &some.stripped[some.numbers.size()]));
  }
  void take_stripped(const TableRows& some) {
    for (size_t at = 0; at < some.stripped.size(); ++at)
      if (const auto& row = some.rows[at / columns_.size()];
          some.numbers[at] && !missing_.holds(row.cells[at % columns_.size()]))
        columns_[at % columns_.size()].add_stripped(some.stripped[at], row.line);
  }

  char point(const TableRows::Row& row, size_t column) const {
    return form_.decimal_comma && !row.is_plain(column) ? ',' : '.';
  }

  bool has_target() const { return !import_.without_targets; }
  std::string like_name() const { return import_.like ? import_.like->name : ""; }
  bool regression() const { return has_target() && !options_.target.empty(); }

  void progress(int64_t done, int64_t total) const {
    if (import_.progress) import_.progress(done, total);
  }

  void ask_for_columns(TableReader& rows) const {
    for (size_t i : order_) rows.need(i);
    if (has_target()) rows.need(target_);
    if (weight_ != kNoColumn) rows.need(weight_);
  }

  size_t find_column(const std::string& name) const {
    const auto found = std::find_if(columns_.begin(), columns_.end(), [&](const Column& c) { return c.name == name; });
    return found == columns_.end() ? kNoColumn : static_cast<size_t>(found - columns_.begin());
  }
  size_t column(const std::string& name) const {
    const size_t found = find_column(name);
    std::vector<std::string> there;
    for (const Column& c : columns_) there.push_back(c.name);
    require(found != kNoColumn, ExitCode::kBadData, names_place_, ": ", no_column_text(name, there));
    return found;
  }

  void name_columns(const std::vector<std::string>& names) {
    std::set<std::string> seen;
    for (std::string name : names) {
      const bool index = name.empty() && columns_.empty() && names.size() > 1;
      if (index) name = "Unnamed: 0";  // as pandas calls it
      require(!name.empty(), ExitCode::kBadData, names_place_, ": column ", columns_.size() + 1, " has no name");
      require(seen.insert(name).second, ExitCode::kBadData, names_place_, ": has two columns '", name, "'");
      columns_.emplace_back().name = name;
      columns_.back().index = index;
    }
    if (!has_target()) return;
    if (columns_[0].index)
      log_warning(str(path_, ":1: the first column has no name, as the index that pandas writes: it is left out; give ",
                      "it a name to import it"));
    target_ = column(regression() ? options_.target : options_.label);
    columns_[target_].used = false;
    if (options_.weight.empty()) return;
    weight_ = column(options_.weight);
    columns_[weight_].used = false;
    require(weight_ != target_, ExitCode::kBadData, names_place_, ": column '", options_.weight,
            "' cannot be both weight and ", regression() ? "target" : "label");
  }

  void choose_columns() {
    for (const std::string& name : options_.leave_out) columns_[column(name)].used = false;
    for (const std::string& name : options_.categories)
      columns_[column(name)].categories = columns_[column(name)].named = true;
    for (const std::string& name : options_.dates) {
      const size_t at = column(name);
      require(!columns_[at].named && (columns_[at].used || (at == target_ && regression())), ExitCode::kUsage,
              "--date ", name, ": the column is ",
              columns_[at].named ? "one of --categories" : "no feature and no target");
      columns_[at].date = DateForm{options_.date_order};
    }
    for (size_t i = 0; i < columns_.size(); ++i)
      if (columns_[i].used && !columns_[i].index) order_.push_back(i);
  }

  void take_columns_of(const LikeData& like) {
    const DataSchema& of = like.schema;
    require(of.kind != DataKind::kTable || !of.mean.empty(), ExitCode::kBadData, like.name,
            ": was trained on several files, each normalised by its own statistics; name one of these files in --like");
    const bool named = of.kind == DataKind::kTable && !of.columns.empty();
    require(
        named || has_target(), ExitCode::kBadData, like.name,
        ": has no names of columns, since its data was not imported from a table (CSV, JSON lines or Parquet); give "
        "an array (.npy) or a dataset");
    require(named, ExitCode::kBadData, like.name, ": is not a table with names of columns");
    const bool numbers = of.target == TargetKind::kNumbers;
    require(!has_target() || numbers == regression(), ExitCode::kBadData, like.name,
            numbers ? ": has numbers as targets and no labels; give --target"
                    : ": has labels and no numbers as targets; give --label");
    require(!has_target() || regression() || !of.class_names.empty(), ExitCode::kBadData, like.name,
            ": has labels without names of classes");
    for (Column& c : columns_) c.used = false;
    const auto damaged = [&](bool good) {
      require(good, ExitCode::kBadData, like.name, ": its 'columns' do not describe its features");
    };
    size_t feature = 0;
    for (const TableColumn& given : parse_columns(of.columns, like.name)) {
      take_form_of(given);
      if (given.type == TableColumn::Type::kTarget) {
        if (regression()) columns_[target_].date = given.date;
        if (!has_target() && find_column(given.name) != kNoColumn)
          log_info(str(path_, ":1: column '", given.name, "' is what ", like.name, " predicts: it is not read"));
        continue;
      }
      const size_t i = column(given.name);
      Column& c = columns_[i];
      require(i != weight_, ExitCode::kBadData, names_place_, ": column '", c.name, "' is a feature in ", like.name,
              ", and cannot be the weight");
      damaged(i != target_ && !c.used && feature < of.mean.size());
      c.used = c.given = true;
      c.filled = options_.fill_missing || (!has_target() && given.missing > 0);
      c.categories = given.type == TableColumn::Type::kCategory;
      c.date = given.date;
      c.mean = of.mean[feature], c.std = of.stddev[feature];
      if (given.missing_texts) options_.missing = *given.missing_texts;
      c.texts.insert(given.values.begin(), given.values.end());
      c.places = LabelNumbers(c.texts);
      feature += static_cast<size_t>(c.features());
      order_.push_back(i);
    }
    damaged(feature == of.mean.size());
    missing_ = MissingTexts(options_.missing, form_);
    labels_.insert(of.class_names.begin(), of.class_names.end());
    classes_ = LabelNumbers(of.class_names);
  }

  // What earlier data says of its cells; the options say otherwise of the sign before decimals and between thousands.
  void take_form_of(const TableColumn& given) {
    if (!options_.decimal_comma && !options_.thousands)
      form_.decimal_comma |= given.form.decimal_comma,
          form_.thousands = std::max(form_.thousands, given.form.thousands);
    if (!given.form.strip.empty()) form_.strip = given.form.strip;
    require_readable(form_);
  }

  int64_t next(TableReader& rows, TableRows& out) const {
    size_t bytes = 0;
    std::vector<std::string> cells;
    while (bytes < kRowBytesAtOnce && rows.next(cells)) {
      for (const std::string& cell : cells) bytes += sizeof cell + cell.size();
      std::vector<bool> plain;
      for (size_t i = 0; !form_.plain() && i < cells.size(); ++i) plain.push_back(rows.is_number(i));
      out.rows.push_back({rows.line(), std::move(cells), std::move(plain)});
    }
    out.done = rows.bytes_read();
    return static_cast<int64_t>(bytes);
  }

  // What an earlier table had as a category or a label stands for itself.
  bool is_missing(const Column& c, const std::string& cell) const {
    if (!cell.empty() && c.given && c.categories && c.texts.contains(cell)) return false;
    return missing_.holds(cell);
  }

  // Features and targets of the rows.
  void make(TableRows& some) const {
    some.features.resize(some.rows.size() * static_cast<size_t>(features_));
    float* features = some.features.data();
    for (const TableRows::Row& row : some.rows) {
      require_same_pass(take_target(row, some) && fill(row, features), str(path_, ":", row.line));
      features += features_;
    }
  }

  // False where a cell is not as the first pass found it.
  bool take_target(const TableRows::Row& row, TableRows& some) const {
    if (!has_target()) return some.labels.push_back(0), true;
    if (regression()) {
      const std::optional<double> number = number_of(row, target_);
      some.targets.push_back(number.value_or(0));
      return is_float(number);
    }
    some.labels.push_back(static_cast<int32_t>(classes_.find(row.cells[target_], point(row, target_))));
    return some.labels.back() >= 0;
  }

  // Called where a cell is wrong only, so that messages are made only where they are needed.
  template <class... Why>
  [[noreturn]] void refuse(int64_t line, const Column& c, const Why&... why) const {
    throw Error(ExitCode::kBadData, str(path_, ":", line, ": column '", c.name, "' ", why...));
  }

  void look_at_target(const TableRows::Row& row, const std::optional<double>& number) {
    const std::string& target = row.cells[target_];
    const int64_t line = row.line;
    Column& c = columns_[target_];
    if (missing_.holds(target) && !(import_.like && !target.empty() && labels_.contains(target)))
      refuse(line, c, "has no ", regression() ? "target" : "label", stands_for_none(target));
    if (regression() && c.date) take_date(row, target_);
    if (regression() && !is_float(number))
      refuse(line, c, "holds '", target, "', which is no number that is finite in 32 bits",
             how_to_read(target, c, form_, like_name(), "; --label is for classes"));
    if (!regression() && import_.like && classes_.find(target, point(row, target_)) < 0)
      refuse(line, c, "holds '", target, "', which is no label of ", import_.like->name);
    if (!regression() && !import_.like) labels_.emplace(label_text(target, point(row, target_)));
    if (static_cast<int64_t>(labels_.size()) > kMostClasses)
      refuse(line, c, "has more than ", kMostClasses, " different labels");
  }

  void take_date(const TableRows::Row& row, size_t column) {
    const std::string why = columns_[column].add_date(row.cells[column]);
    if (!why.empty()) refuse(row.line, columns_[column], why);
  }

  // A cell of a column that earlier data has, too.
  void look_at_given(const TableRows::Row& row, size_t column, const std::optional<double>& number) {
    Column& c = columns_[column];
    const std::string& cell = row.cells[column];
    const bool known = c.categories ? c.places.find(cell, point(row, column)) >= 0
                                    : is_float(number) && is_float((*number - c.mean) / c.std);
    if (!known && c.categories && options_.unknown_is_missing) {
      if (c.unknown++ == 0) c.unknown_line = row.line, c.other = cell;
      return;
    }
    if (!known && c.categories && is_missing(c, cell))
      refuse(row.line, c, "has no value", stands_for_none(cell), ", and none is missing in ", import_.like->name,
             "; --unknown missing takes such a cell for none of its categories");
    if (!known)
      refuse(row.line, c, "holds '", cell, "', which is no ",
             c.categories ? "category of the column in " : "number that can be normalised as in ", import_.like->name,
             c.categories ? "; --unknown missing takes it for a missing value"
                          : how_to_read(cell, c, form_, like_name(), ""));
    if (!c.categories) c.moments.add(*number);
  }

  // `numbers`: what number_of() finds in the cells.
  void look_at(const TableRows::Row& row, const std::optional<double>* numbers) {
    const std::vector<std::string>& cells = row.cells;
    const int64_t line = row.line;
    ++count_;
    if (has_target()) look_at_target(row, numbers[target_]);
    if (weight_ != kNoColumn && !is_weight(numbers[weight_]))
      refuse(line, columns_[weight_], "holds '", cells[weight_], "', ", kNoWeight);
    if (weight_ != kNoColumn) weights_.push_back(static_cast<float>(*numbers[weight_]));
    for (size_t i : order_) {
      Column& c = columns_[i];
      const std::optional<double>& number = numbers[i];
      if (is_missing(c, cells[i])) {
        if (c.given && c.categories && !c.texts.contains("")) {
          look_at_given(row, i, number);
          continue;
        }
        if (!(c.given ? c.filled : options_.fill_missing))
          refuse(line, c, "has no value", stands_for_none(cells[i]), "; --fill-missing fills such cells",
                 c.given ? "" : ", --leave-out leaves the column out");
        ++c.missing;
        continue;
      }
      if (c.date) take_date(row, i);
      if (c.given) {
        look_at_given(row, i, number);
        continue;
      }
      ++(number ? c.numbers : c.others);
      if (!number && !c.categories) c.categories = true, c.other = cells[i], c.other_line = line;
      std::string text(c.too_many_line == 0 ? label_text(cells[i], point(row, i)) : "");
      if (static_cast<int64_t>(c.texts.size()) < kMostFeatures) c.add_text(std::move(text), number ? 0 : line);
      else if (c.too_many_line == 0 && !c.texts.contains(text)) c.too_many_line = line;
      if (c.categories) continue;
      const double value = number.value_or(0);
      if (!(std::abs(value) <= std::numeric_limits<float>::max()))
        refuse(line, c, "holds '", cells[i], "', which is not finite in 32 bits");
      c.moments.add(value);
    }
  }

  void conclude_labels() {
    const auto labels = static_cast<int64_t>(labels_.size());
    const std::string& target = columns_[target_].name;
    require(import_.like || options_.many_labels || labels <= kManyLabels, ExitCode::kBadData, path_, ": column '",
            target, "' has ", labels, " different labels in ", count_, " rows: --target ", target,
            " predicts its numbers, --many-labels makes a class of each");
    if (import_.like) class_names_ = import_.like->schema.class_names;
    else index_of_labels(labels_, str(path_, ": column '", columns_[target_].name, "'"), class_names_);
    classes_ = LabelNumbers(class_names_);
  }

  void conclude() {
    if (has_target()) conclude_labels();
    for (size_t i : order_) {
      Column& c = columns_[i];
      require_meant(c, path_, form_);
      if (c.categories && c.missing > 0) c.texts.insert("");
      c.moments.settle();
      if (!c.given) c.mean = c.moments.mean, c.std = c.moments.scale();
      // Without targets that is the mean, so that it does not depend on the other rows.
      c.offset = has_target() ? c.moments.offset(c.mean, c.std) : c.mean;
      if (!c.categories && c.moments.beyond_doubles())
        warn_of_lost_bits(path_, str("column '", c.name, "'"), c.moments.largest, c.std);
      require(c.categories || c.given || c.moments.count > 0, ExitCode::kBadData, path_, ": column '", c.name,
              "' has no value in any row; --leave-out leaves it out");
      c.feature = features_;
      features_ += c.features();
      if (c.categories) c.places = LabelNumbers(c.texts);
      warn_of_values(c, path_, count_, like_name());
      if (!c.categories) warn_of_units(c, path_, form_);
    }
    if (regression()) warn_of_units(columns_[target_], path_, form_);
    require(features_ > 0, ExitCode::kBadData, path_, ": has no column beside '",
            has_target() ? columns_[target_].name : "", "'");
    require(features_ <= kMostFeatures, ExitCode::kBadData, path_, ": makes ", features_, " features; at most ",
            kMostFeatures, " are possible; --leave-out leaves columns out");
  }

  // False where a cell is not as the first pass found it.
  bool fill(const TableRows::Row& row, float* features) const {
    std::fill(features, features + features_, 0.0f);
    for (size_t i : order_) {
      const Column& c = columns_[i];
      const std::string& cell = row.cells[i];
      float* to = features + c.feature;
      if (c.categories) {
        int64_t at = c.places.find(is_missing(c, cell) ? "" : cell, point(row, i));
        if (at < 0 && c.unknown > 0 && (at = c.places.find("")) < 0) continue;
        if (at < 0) return false;
        to[at] = 1;
      } else {
        const std::optional<double> value = is_missing(c, cell) ? c.mean : number_of(row, i);
        if (!is_float(value)) return false;
        *to = static_cast<float>(*value - c.offset);
      }
    }
    return true;
  }

  const TableSource& source_;
  const std::string path_;   // for messages
  std::string names_place_;  // likewise, of the columns' names
  TableOptions options_;
  const ImportOptions& import_;
  const int threads_;
  NumberForm form_;  // of numbers that the file does not have as such
  MissingTexts missing_;
  std::vector<Column> columns_;
  std::vector<size_t> order_;                       // the columns that have features, in the order of these
  size_t target_ = kNoColumn, weight_ = kNoColumn;  // the columns of the labels or targets, and of weights
  std::vector<float> weights_;                      // of the rows, where there is such a column
  std::set<std::string> labels_;
  std::vector<std::string> class_names_;
  LabelNumbers classes_;  // their numbers
  int64_t count_ = 0, features_ = 0;
  Hash128 hash_;  // of what the first pass read
};

}  // namespace

void import_table(const TableSource& source, const std::string& output, const TableOptions& columns,
                  const ImportOptions& options) {
  PartialOutput pending(output, options.force);
  TableImport import(source, columns, options);
  Hdf5File file = Hdf5File::create(pending.dataset());
  DatasetHeader header;
  import.write(file, header);
  write_dataset_header(file, header);
  file.close();
  pending.commit();
}

}  // namespace lockstep
