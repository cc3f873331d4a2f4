#include "launch/predict/prediction_inputs.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <string_view>
#include <unordered_map>

#include "core/base/error.h"
#include "core/base/log.h"
#include "data/samples/dataset_file.h"
#include "data/samples/sample_kind.h"
#include "data/samples/text/text_windows.h"

namespace lockstep {

// What is read once more while predictions are written.
struct PredictionInputs::Input {
  std::string name;  // for messages
  int64_t left = 0;  // samples
  TableFile file;    // of a table
  std::unique_ptr<TableReader> rows;
  std::vector<std::string> cells;
  std::vector<std::pair<size_t, size_t>> kept;  // a column, and which of kept() it is
  std::vector<std::string> files;               // images, of which each is named
  std::string within;                           // their folder, where they are all of one
  size_t file_place = 0;                        // which of kept() that is
  std::vector<int32_t> parts;                   // of each text, its windows
  int64_t at = 0;                               // samples that were given
};

PredictionInputs::PredictionInputs(const std::vector<std::string>& inputs, const LikeData& like,
                                   const std::string& folder, InputOptions options)
    : like_(std::make_shared<LikeData>(like)), options_(std::move(options)) {
  like_->new_classes = true;  // targets are not fitted, as there are none
  require(!sample_kind(like.schema.kind).normalised() || !like.schema.mean.empty(), ExitCode::kBadData, like.name,
          ": was trained on several files, each normalised by its own statistics, so that nobody can tell those of a "
          "single sample; join the files with `lockstep data merge` before training");
  require(!options_.keep || like.schema.kind != DataKind::kImages, ExitCode::kUsage,
          "--keep is for the columns of tables, and ", like.name, " was trained on images");
  for (size_t i = 0, end; i < inputs.size(); i = end) {
    end = i;
    if (like.schema.kind == DataKind::kImages)
      while (end < inputs.size() && is_image_name(inputs[end]) && !std::filesystem::is_directory(inputs[end])) ++end;
    if (end > i)
      import_pictures({inputs.begin() + std::ptrdiff_t(i), inputs.begin() + std::ptrdiff_t(end)}, "", folder);
    else import(inputs[end++], folder);
  }
}
PredictionInputs::~PredictionInputs() = default;

PredictionInputs::Input& PredictionInputs::add_input(const std::string& name) {
  Input& input = *inputs_.emplace_back(std::make_unique<Input>());
  input.name = name;
  return input;
}

void PredictionInputs::import(const std::string& path, const std::string& folder) {
  const DataKind kind = like_->schema.kind;
  const bool standard = path == "-", table = kind != DataKind::kImages;
  require(!standard || !piped_, ExitCode::kUsage, "standard input (-) can be read once");
  std::error_code error;
  require(standard || std::filesystem::exists(path, error), ExitCode::kMissingInput, path, ": there is no such file");
  const bool is_folder = !standard && std::filesystem::is_directory(path, error);
  if (is_folder && kind == DataKind::kImages) return import_pictures(images_within(path), path, folder);
  require(!is_folder && (!standard || table), ExitCode::kUsage, path, ": ", like_->name, " was trained on ",
          sample_kind(kind).words().content,
          is_folder ? "; name a file, or - for standard input"
                    : ", which are not read from standard input; name files or a folder");
  Input& input = add_input(standard ? "standard input" : path);
  const std::string to = str(folder, "/", datasets_.size(), ".h5");
  if (standard) piped_.emplace(to);
  input.file = {standard ? piped_->path() : path, input.name, options_.table.encoding, options_.table.delimiter,
                kind == DataKind::kTokens && !options_.is_table};
  if (is_hdf5_file(input.file.path)) return take(input, input.file.path);
  import_file(input, to);
  take(input, to);
}

void PredictionInputs::take(Input& input, const std::string& dataset) {
  if (options_.imported) options_.imported();
  const DatasetHeader header = read_dataset_header(Hdf5File::open(dataset));
  input.left = sample_count(header);
  samples_ += input.left;
  datasets_.push_back(dataset);
  if (header.kind == DataKind::kTokens && like_->schema.classes == 0 && options_.context > 0)
    visit_records(*open_dataset_file(dataset, 16 << 20), [&](IndexRange text) {
      input.parts.push_back(narrow<int32_t>(text_windows(text.size(), options_.context)));
    });
  if (const auto longer = std::count_if(input.parts.begin(), input.parts.end(), [](int32_t n) { return n > 1; }))
    log_warning(str(input.name, ": ", longer, " of ", input.parts.size(), " texts have more than ", options_.context,
                    " tokens: each is cut into windows of so many, and a window sees nothing of those before it"));
  const Shape& wanted = options_.image;
  if (header.kind != DataKind::kImages || wanted.rank() == 0) return;
  const Shape& found = header.images;
  require(!header.encoded && found[1] == wanted[0] && found[2] == wanted[1], ExitCode::kBadData, input.name,
          header.encoded ? std::string(": holds images of any size")
                         : str(": holds images of ", found[1], " x ", found[2], " pixels"),
          ", but ", like_->name, " was trained on images of ", wanted[0], " x ", wanted[1],
          " as they were stored; --resize takes the middle of each and resizes it");
}

ImportOptions PredictionInputs::import_options() const {
  ImportOptions how;
  how.progress = options_.progress;
  how.like = like_;
  how.without_targets = true;
  return how;
}

void PredictionInputs::import_pictures(std::vector<std::string> files, const std::string& within,
                                       const std::string& folder) {
  for (const std::string& file : files)
    require(std::filesystem::exists(file), ExitCode::kMissingInput, file, ": there is no such file");
  Input& input = add_input(within.empty() ? files[0] : within);
  input.within = within;
  const std::string to = str(folder, "/", datasets_.size(), ".h5");
  ImageOptions images;
  images.files = files;
  images.skip_bad = options_.skip_bad;
  const std::vector<std::string> left_out = import_images(input.name, to, images, import_options());
  auto bad = left_out.begin();
  for (std::string& file : files)
    if (bad != left_out.end() && *bad == file) ++bad;
    else input.files.push_back(std::move(file));
  input.file_place = kept_place("file");
  take(input, to);
}

void PredictionInputs::import_file(Input& input, const std::string& to) {
  const std::string& path = input.file.path;
  if (like_->schema.kind == DataKind::kTokens) return import_text_file(input, to);
  if (path.ends_with(".npy")) return import_npy(path, "", to, import_options());
  if (like_->schema.kind == DataKind::kImages) return import_idx(path, "", to, 0, import_options());
  std::set<std::string> features;
  for (const TableColumn& c : parse_columns(like_->schema.columns.empty() ? "[]" : like_->schema.columns, like_->name))
    if (c.type != TableColumn::Type::kTarget) features.insert(c.name);
  choose_kept(input, std::move(features));
  TableOptions table = options_.table;
  table.name = input.name;
  import_csv(path, to, table, import_options());
}

void PredictionInputs::import_text_file(Input& input, const std::string& to) {
  require(like_->vocabulary != nullptr, ExitCode::kUsage, like_->name,
          ": was trained on token ids, which no text has: give a dataset");
  // Where a text is all that there is, it tells which one a prediction is of.
  choose_kept(input, {open_table(input.file)->names().size() > 1 ? options_.text : ""});
  ImportOptions how = import_options();
  how.vocabulary = like_->vocabulary;
  how.separator = options_.separator;
  import_texts(input.file, options_.text, to, how);
}

size_t PredictionInputs::kept_place(const std::string& name) {
  const auto [place, is_new] = kept_places_.emplace(name, kept_.size());
  if (is_new) kept_.push_back(name);
  return place->second;
}

void PredictionInputs::choose_kept(Input& input, std::set<std::string> read) {
  input.rows = open_table(input.file);
  const std::vector<std::string>& names = input.rows->names();
  std::vector<std::string> chosen;
  for (const std::string& name : names)
    if (!read.contains(name)) chosen.push_back(name);
  if (options_.keep) chosen = *options_.keep;
  std::unordered_map<std::string_view, size_t> columns;
  for (size_t i = 0; i < names.size(); ++i) columns.emplace(names[i], i);
  for (const std::string& name : chosen) {
    const auto column = columns.find(name);
    require(column != columns.end(), ExitCode::kUsage, "--keep ", name, ": ", input.name, " has no such column");
    input.kept.emplace_back(column->second, kept_place(name));
  }
}

KnownOfSample PredictionInputs::next() {
  while (inputs_[at_]->left == 0) inputs_[at_++]->rows.reset();
  Input& input = *inputs_[at_];
  --input.left;
  parts_ = input.parts.empty() ? 1 : input.parts[static_cast<size_t>(input.at)];
  ++input.at;
  KnownOfSample known{{}, std::to_string(given_++)};
  known.name.insert(0, std::to_string(samples_ - 1).size() - known.name.size(), '0');  // so that names are in order
  JsonObject& out = known.kept;
  for (const std::string& name : kept_) out.emplace_back(name, nullptr);
  if (!input.files.empty()) out[input.file_place].second = input.files[static_cast<size_t>(input.at - 1)];
  if (!input.files.empty()) {
    const std::filesystem::path file = input.files[static_cast<size_t>(input.at - 1)];
    known.name = (input.within.empty() ? file.filename() : file.lexically_relative(input.within)).replace_extension();
  }
  if (!input.rows) return known;
  require(input.rows->next(input.cells), ExitCode::kBadData, input.name,
          ": has become shorter since it was read before; predict again");
  for (const auto& [column, place] : input.kept) out[place].second = input.rows->value(input.cells, column);
  return known;
}

}  // namespace lockstep
