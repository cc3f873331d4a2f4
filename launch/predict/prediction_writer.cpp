#include "launch/predict/prediction_writer.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <optional>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "core/base/temporary.h"
#include "core/base/text_table.h"
#include "core/io/files.h"
#include "core/io/numpy_file.h"
#include "core/io/pending_file.h"
#include "data/text/valid_text.h"
#include "launch/terminal/output.h"

namespace lockstep {
namespace {

// A file or standard output, written by blocks.
class BlockOutput {
 public:
  explicit BlockOutput(const PredictionOutput& o) : path_(o.path) {
    if (path_.empty()) return;
    pending_.emplace(path_, o.replace);
    file_ = open_to_append(pending_->temporary());
    if (!file_) fail_write(path_, errno);
  }
  void write(std::string_view text) {
    block_ += text;
    if (block_.size() >= kBlock) flush();
  }
  void finish() {
    flush();
    if (!pending_) return;
    file_ = Descriptor();
    pending_->commit();
  }

 private:
  static constexpr size_t kBlock = 1 << 20;

  void flush() {
    if (pending_ && !write_all(file_, block_)) fail_write(path_, errno);
    if (!pending_) print_out(block_, shown_on_output());
    block_.clear();
  }

  const std::string path_;
  std::optional<PendingFile> pending_;
  Descriptor file_;
  std::string block_;
};

// The text of a value, as it would stand in a cell.
std::string plain_text(const JsonValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* json = std::get_if<JsonText>(&value)) return json->text;
  return std::holds_alternative<std::nullptr_t>(value) ? "" : json_text_of(value);
}

class CsvWriter final : public PredictionWriter {
 public:
  CsvWriter(const PredictionOutput& output, const PredictedValues& values, std::vector<std::string> names)
      : output_(output), values_(values) {
    const std::vector<std::string> own = values.names();
    names.insert(names.end(), own.begin(), own.end());
    for (const std::string& name : names) add_cell(name);
    end_row();
  }
  void add(const KnownOfSample& known, std::string_view sample) override {
    for (const auto& [name, value] : known.kept) add_cell(plain_text(value));
    for (const auto& [name, value] : values_.told(sample)) add_cell(plain_text(value));
    end_row();
  }
  void finish() override { output_.finish(); }

 private:
  void add_cell(const std::string& text) {
    if (cells_++ > 0) row_ += ',';
    row_ += csv_cell(text);
  }
  void end_row() {
    output_.write((cells_ == 1 && row_.empty() ? "\"\"" : row_) + "\n");  // an empty line is no row
    row_.clear();
    cells_ = 0;
  }

  BlockOutput output_;
  const PredictedValues& values_;
  std::string row_;
  int cells_ = 0;
};

class JsonWriter final : public PredictionWriter {
 public:
  JsonWriter(const PredictionOutput& output, const PredictedValues& values) : output_(output), values_(values) {}
  void add(const KnownOfSample& known, std::string_view sample) override {
    JsonObject line = known.kept;
    for (const auto& [name, value] : line)
      if (const auto* text = std::get_if<std::string>(&value))
        require(first_invalid(*text, TextEncoding::kUtf8) < 0, ExitCode::kBadData, *text, ": this ", name,
                " is no UTF-8, which JSON is written in: rename it, or write CSV");
    for (auto& member : values_.json(sample)) line.push_back(std::move(member));
    output_.write(json_line(line) + "\n");
  }
  void finish() override { output_.finish(); }

 private:
  BlockOutput output_;
  const PredictedValues& values_;
};

class ArrayWriter final : public PredictionWriter {
 public:
  ArrayWriter(const PredictionOutput& output, const PredictedValues& values, int64_t count)
      : output_(output), values_(values) {
    Shape shape{count};
    const Shape of_sample = values.array_shape();
    for (int i = 0; i < of_sample.rank(); ++i) shape.push_back(of_sample[i]);
    output_.write(numpy_head(values.array_type(), shape));
  }
  void add(const KnownOfSample&, std::string_view sample) override { output_.write(values_.elements(sample)); }
  void finish() override { output_.finish(); }

 private:
  BlockOutput output_;
  const PredictedValues& values_;
};

// Pictures in a folder of the samples' names, which is made under another name beside it.
class FolderWriter final : public PredictionWriter {
 public:
  FolderWriter(const PredictionOutput& output, const PredictedValues& values) : output_(output.path), values_(values) {
    check_place(output);
    made_ = make_temporary_folder(output_ + ".lockstep-", 0777);
    if (!made_.lock) fail_write(output_, errno);
  }
  ~FolderWriter() override {
    if (made_.lock) remove_tree(made_.path);
  }
  void add(const KnownOfSample& known, std::string_view sample) override {
    const std::string path = str(made_.path, "/", known.name, ".png");
    make_folder(std::filesystem::path(path).parent_path());
    const Descriptor file = create_new(path);
    const int error = errno;
    require(file || error != EEXIST, ExitCode::kUsage, "two inputs have the name ", known.name,
            ": predict them into different folders");
    if (!file) fail_write(path, error);
    if (!write_all(file, values_.png(sample))) fail_write(path, errno);
  }
  void finish() override {
    std::error_code error;
    std::filesystem::rename(made_.path, output_, error);
    if (error) fail_write(output_, error.value());
    made_.lock = Descriptor();
    sync_folder_of(output_);
  }

 private:
  const std::string output_;
  const PredictedValues& values_;
  Temporary made_;
};

}  // namespace

void check_place(const PredictionOutput& o) {
  if (o.format != PredictionFormat::kFolder)
    return o.path.empty() ? void() : PendingFile::check_place(o.path, o.replace);
  require(!o.path.empty(), ExitCode::kUsage, "--output: name a folder, which gets a PNG file for each sample");
  require(!o.replace, ExitCode::kUsage, "--force: does not replace a folder, ", o.path, ": name one that is not there");
  require(!std::filesystem::exists(o.path), ExitCode::kOutputLocked, o.path,
          ": is already there; remove it or choose another name");
  PendingFile::check_place(o.path, false);
}

PredictionFormat prediction_format(const std::string& path, const std::string& named, bool pictures) {
  if (pictures) {
    for (const char* ending : {".csv", ".tsv", ".jsonl", ".ndjson", ".json", ".png"})
      require(!named.empty() || !path.ends_with(ending), ExitCode::kUsage, "--output ", path, ": masks are not ",
              ending, " but a folder with a PNG file for each image; name a folder, or FILE.npy for one array of all");
    const std::string form = !named.empty() ? named : path.ends_with(".npy") ? "npy" : "png";
    require(form == "npy" || form == "png", ExitCode::kUsage, "--format ", named, ": masks are written as png or npy");
    return form == "npy" ? PredictionFormat::kNumpy : PredictionFormat::kFolder;
  }
  const auto is = [&](const char* name) { return named.empty() ? path.ends_with(str(".", name)) : named == name; };
  if (is("csv") || (named.empty() && path.empty())) return PredictionFormat::kCsv;
  if (is("jsonl") || is("ndjson")) return PredictionFormat::kJson;
  if (is("npy")) return PredictionFormat::kNumpy;
  throw Error(ExitCode::kUsage, named.empty() ? str("--output ", path, ": ends with none of .csv, .jsonl and .npy; ",
                                                    "name its format by --format")
                                              : str("--format ", named, ": must be csv, jsonl or npy"));
}

std::unique_ptr<PredictionWriter> prediction_writer(const PredictionOutput& output, const PredictedValues& values,
                                                    const std::vector<std::string>& kept, int64_t count) {
  if (output.format == PredictionFormat::kNumpy) return std::make_unique<ArrayWriter>(output, values, count);
  if (output.format == PredictionFormat::kFolder) return std::make_unique<FolderWriter>(output, values);
  const bool json = output.format == PredictionFormat::kJson;
  const std::vector<std::string> own = json ? values.json_names() : values.names();
  for (const std::string& name : kept)
    require(std::find(own.begin(), own.end(), name) == own.end(), ExitCode::kUsage, "the input has a ",
            json ? "field '" : "column '", name,
            "', which is also the name of what is predicted; --keep names the columns that are copied to the output");
  if (json) return std::make_unique<JsonWriter>(output, values);
  return std::make_unique<CsvWriter>(output, values, kept);
}

}  // namespace lockstep
