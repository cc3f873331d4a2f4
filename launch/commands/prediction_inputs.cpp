#include "launch/commands/prediction_inputs.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/base/error.h"
#include "data/samples/dataset_file.h"
#include "data/samples/sample_kind.h"

namespace lockstep {

// What is read once more while predictions are written.
struct PredictionInputs::Input {
  std::string name;  // for messages
  TableFile file;    // of a table
  int64_t left = 0;  // samples
  std::unique_ptr<TableReader> rows;
  std::vector<std::string> cells;
  std::vector<std::pair<size_t, size_t>> kept;  // a column, and which of kept() it is
};

PredictionInputs::PredictionInputs(const std::vector<std::string>& inputs, const LikeData& like,
                                   const std::string& folder, InputOptions options)
    : like_(std::make_shared<LikeData>(like)), options_(std::move(options)) {
  like_->new_classes = true;  // targets are not fitted, as there are none
  require(!sample_kind(like.schema.kind).normalised() || !like.schema.mean.empty(), ExitCode::kBadData, like.name,
          ": was trained on several files, each normalised by its own statistics, so that nobody can tell those of a "
          "single sample; join the files with `lockstep data merge` before training");
  for (const std::string& path : inputs) import(path, folder);
}
PredictionInputs::~PredictionInputs() = default;

void PredictionInputs::import(const std::string& path, const std::string& folder) {
  Input& input = *inputs_.emplace_back(std::make_unique<Input>());
  const bool standard = path == "-";
  require(!standard || !piped_, ExitCode::kUsage, "standard input (-) can be read once");
  const std::string to = str(folder, "/", datasets_.size(), ".h5");
  if (standard) piped_.emplace(to);
  input.name = standard ? "standard input" : path;
  input.file = {standard ? piped_->path() : path, input.name, options_.table.encoding, options_.table.delimiter};
  std::error_code error;
  require(standard || std::filesystem::exists(path, error), ExitCode::kMissingInput, path, ": there is no such file");
  const bool folder_given = !standard && std::filesystem::is_directory(path, error);
  datasets_.push_back(!folder_given && is_hdf5_file(input.file.path) ? input.file.path : to);
  if (datasets_.back() == to) {
    const DataKind kind = like_->schema.kind;
    require(kind == DataKind::kTable && !folder_given, ExitCode::kUsage, path, ": ", like_->name, " was trained on ",
            sample_kind(kind).words().content, ", of which predict reads no such input");
    import_table_file(input, to);
  }
  input.left = sample_count(read_dataset_header(Hdf5File::open(datasets_.back())));
}

void PredictionInputs::import_table_file(Input& input, const std::string& to) {
  ImportOptions how;
  how.progress = options_.progress;
  how.like = like_;
  how.without_targets = true;
  if (input.file.path.ends_with(".npy")) return import_npy(input.file.path, "", to, how);
  choose_kept(input);
  TableOptions table = options_.table;
  table.name = input.name;
  import_csv(input.file.path, to, table, how);
}

void PredictionInputs::choose_kept(Input& input) {
  input.rows = open_table(input.file);
  const std::vector<std::string>& names = input.rows->names();
  std::set<std::string> features;
  for (const TableColumn& c : parse_columns(like_->schema.columns.empty() ? "[]" : like_->schema.columns, like_->name))
    if (c.type != TableColumn::Type::kTarget) features.insert(c.name);
  std::vector<std::string> chosen;
  for (const std::string& name : names)
    if (!features.contains(name)) chosen.push_back(name);
  if (options_.keep) chosen = *options_.keep;
  for (const std::string& name : chosen) {
    const auto column = std::find(names.begin(), names.end(), name);
    require(column != names.end(), ExitCode::kUsage, "--keep ", name, ": ", input.name, " has no such column");
    const auto place = std::find(kept_.begin(), kept_.end(), name);
    input.kept.emplace_back(column - names.begin(), place - kept_.begin());
    if (place == kept_.end()) kept_.push_back(name);
  }
}

JsonObject PredictionInputs::next() {
  while (inputs_[at_]->left == 0) inputs_[at_++]->rows.reset();
  Input& input = *inputs_[at_];
  --input.left;
  JsonObject out;
  for (const std::string& name : kept_) out.emplace_back(name, nullptr);
  if (!input.rows) return out;
  require(input.rows->next(input.cells), ExitCode::kBadData, input.name,
          ": has become shorter since it was read before; predict again");
  for (const auto& [column, place] : input.kept) out[place].second = input.rows->value(input.cells, column);
  return out;
}

}  // namespace lockstep
