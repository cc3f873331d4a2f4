// DataSchema: what the numbers of a dataset's samples mean: how inputs are normalised, which label is which class, what
// the columns and units are. It belongs to the run that was trained on the data and travels in its checkpoints; other
// data is fitted to it by name. Plain values; the vocabulary of text travels beside it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/io/json.h"
#include "data/samples/cell_form.h"
#include "data/samples/data_kind.h"

namespace lockstep {

class Vocabulary;
struct DatasetFile;
struct DatasetHeader;

constexpr const char* kMissingTexts = "missing_texts";  // of a column's description: TableOptions::missing, if given

struct DataSchema {
  DataKind kind = DataKind::kTokens;
  TargetKind target = TargetKind::kLabels;
  int64_t classes = 0;                   // 0: the samples have no labels
  std::vector<std::string> class_names;  // of each label; empty: a label's name is its number
  std::vector<double> mean, stddev;      // as DatasetHeader; empty: of text, or of files that each have their own
  std::string columns;                   // of tables, as DatasetHeader; may be empty
  double target_mean = 0, target_std = 1;

  friend bool operator==(const DataSchema&, const DataSchema&) = default;
};

// A column of a table, as DatasetHeader::columns describes it.
struct TableColumn {
  std::string name;
  enum class Type : uint8_t { kNumber, kCategory, kTarget } type = Type::kNumber;
  std::vector<std::string> values;  // of categories, one feature each
  int64_t missing = 0;              // cells that were filled
  // The texts that stood for no value in the table, where they were not the usual ones.
  std::optional<std::vector<std::string>> missing_texts = {};
  NumberForm form = {};               // of numbers in the table
  std::optional<DateForm> date = {};  // of dates or times, which are numbers of days

  int64_t features() const;
  friend bool operator==(const TableColumn&, const TableColumn&) = default;
};
// A member of a column's description for each thing that is not as usual. The inverse is a part of parse_columns().
void describe_cells(const NumberForm& form, const std::optional<DateForm>& date, JsonObject& column);
// Throws ExitCode::kBadData naming `where`.
std::vector<TableColumn> parse_columns(const std::string& columns, std::string_view where);

// The data that other data is to be like: of a run, or of a dataset file.
struct LikeData {
  std::string name;                              // of the run, checkpoint or file
  DataSchema schema;                             // whose mean is empty where each file keeps its own statistics
  std::shared_ptr<const Vocabulary> vocabulary;  // of text; else null
  bool new_classes = false;                      // labels and targets are not fitted: what learns them is new
  std::string remedy = {};                       // of classes that are not there, for messages
};

DataSchema schema_of(const DatasetHeader& header);
std::shared_ptr<const LikeData> like_file(const std::string& path);  // throws the errors of open_dataset_file
// One JSON object, as checkpoints hold it, and the inverse, which throws ExitCode::kBadData naming `where`.
std::string schema_text(const DataSchema& schema);
DataSchema parse_schema(const std::string& text, std::string_view where);
// For people: "images; 3 classes: circle, cross, square; mean 0.49, std 0.21".
std::string described(const DataSchema& schema);

// The number that each of the header's labels has in `like`, -1 for one that it lacks.
std::vector<int32_t> labels_in(const DatasetHeader& header, const DataSchema& like);
// "class 'ship' is none of its 3 classes: circle, cross, square"
std::string unknown_class(const std::string& name, const DataSchema& like);

// A header that gets the meaning that its samples have in other data: what kinds of samples and targets need for that
// (data/samples/sample_kind.h, data/samples/sample_target.h). Borrows all of it.
class SchemaFit {
 public:
  SchemaFit(const std::string& where, DatasetHeader& header, std::vector<int32_t>& labels, const LikeData& like)
      : where(where), header(header), like(like), labels_(labels) {}

  // `file`: whose rows stay as they are stored; null for an import.
  void run(DatasetFile* file);
  // Throws ExitCode::kBadData.
  [[noreturn]] void refuse(const std::string& why, const std::string& remedy) const;
  void fit_statistics();  // mean and deviation, where the other data has them in common
  void fit_labels();      // by their names
  void fit_classes();     // which must be the same, or fewer
  static std::string first_few(const std::vector<std::string>& names);

  const std::string& where;
  DatasetHeader& header;
  const LikeData& like;

 private:
  void fit_targets();

  std::vector<int32_t>& labels_;
};

// Gives the samples of a file the meaning that they have in `like`: its normalisation, its numbers of classes, its
// columns, its characters, each found by name. Throws ExitCode::kBadData naming the file and the first difference that
// cannot be mapped. The identity stays that of the file.
void fit_to(DatasetFile& file, const LikeData& like);
// The same for what an import is about to write to `where`: labels, and statistics once the header has its own. Tables
// with columns are fitted row by row (import_csv).
void fit_to(DatasetHeader& header, std::vector<int32_t>& labels, const LikeData& like, const std::string& where);

}  // namespace lockstep
