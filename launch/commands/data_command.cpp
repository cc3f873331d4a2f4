#include <algorithm>
#include <atomic>
#include <csignal>
#include <filesystem>

#include "core/io/checkpoint.h"
#include "data/import.h"
#include "launch/commands/command_line.h"
#include "launch/commands/commands.h"
#include "launch/commands/progress.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

// A signal ends an import at its next block, so that the incomplete output is removed.
std::atomic<int> stop_of_import{0};
static_assert(std::atomic<int>::is_always_lock_free);
void stop_on_signals() {
  for (int s : {SIGTERM, SIGINT, SIGHUP}) {
    const auto before = std::signal(s, [](int number) { stop_of_import = number; });
    if (before == SIG_IGN) std::signal(s, SIG_IGN);  // ignored before, as under nohup: keep it so
  }
}

// A progress display that is updated by a callback (done, total).
class ShownProgress {
 public:
  explicit ShownProgress(std::string title) : title_(std::move(title)) {}
  void operator()(int64_t done, int64_t total) {
    if (!progress_) {
      ProgressOptions o;
      o.title = title_;
      o.total = total;
      o.unit = "bytes";
      progress_ = std::make_unique<Progress>(o);
    }
    progress_->set(done);
  }
  // To be called on success; otherwise the destructor erases the display.
  void finish() {
    if (progress_) progress_->finish();
    progress_.reset();
  }

 private:
  std::string title_;
  std::unique_ptr<Progress> progress_;
};

// The vocabulary of a run, a checkpoint, a dataset or a text file.
std::shared_ptr<const Vocabulary> vocabulary_from(const std::string& from) {
  std::error_code error;
  std::unique_ptr<Vocabulary> found;
  if (std::filesystem::is_directory(from, error)) {
    found = parse_vocabulary(open_newest(from).info.vocabulary);
    require(found != nullptr, ExitCode::kBadData, "--vocabulary ", from,
            ": was not trained on text with a vocabulary of characters or bytes");
  } else if (is_hdf5_file(from)) {
    found = vocabulary_of_dataset(from);
    require(found != nullptr, ExitCode::kBadData, "--vocabulary ", from,
            ": has no vocabulary, because its ids come from another tokenizer (level ids)");
  } else {
    found = vocabulary_of_text(from);
  }
  return found;
}

using Inputs = std::vector<std::string>;

void import_text_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  const std::string &level = a.text("level"), &from = a.text("vocabulary");
  require(level.empty() || level == "char" || level == "byte", ExitCode::kUsage, "--level ", level,
          ": must be char or byte");
  if (!from.empty()) options.vocabulary = vocabulary_from(from);
  TextLevel wanted = level == "byte" ? TextLevel::kByte : TextLevel::kChar;
  if (options.vocabulary) {
    const TextLevel there = options.vocabulary->level();
    require(level.empty() || wanted == there, ExitCode::kUsage, "--level ", level, ": the vocabulary of ", from,
            " is of level ", to_text(there));
    wanted = there;
  }
  import_text(inputs, output, wanted, options);
}

void import_idx_files(const Arguments& a, const Inputs& inputs, const std::string& output, ImportOptions options) {
  require(a.text("vocabulary").empty() && a.text("level").empty(), ExitCode::kUsage,
          "data import idx: --vocabulary and --level are for text");
  require(inputs.size() == 2, ExitCode::kUsage, "data import idx: give the image file, the label file and the output");
  import_idx(inputs[0], inputs[1], output, a.integer("classes", 0), options);
}

struct ImportFormat {
  std::string name, help;
  void (*import)(const Arguments&, const Inputs&, const std::string& output, ImportOptions);
};
const ImportFormat kFormats[] = {
    {"text", "concatenates the INPUT files in order", import_text_files},
    {"idx", "INPUT is an image file and its label file (IDX, gzip or plain)", import_idx_files}};

int import(const Arguments& a) {
  const std::string name = a.positional.front(), output = a.positional.back();
  const Inputs inputs(a.positional.begin() + 1, a.positional.end() - 1);
  ImportOptions options;
  options.force = a.has("force");
  auto shown = std::make_shared<ShownProgress>("import");
  stop_on_signals();
  options.progress = [shown, output](int64_t done, int64_t total) {
    require(stop_of_import == 0, ExitCode::kSaved, output,
            ": the import was stopped on request; its output was removed");
    (*shown)(done, total);
  };
  const auto is_named = [&](const ImportFormat& f) { return f.name == name; };
  std::find_if(std::begin(kFormats), std::end(kFormats), is_named)->import(a, inputs, output, options);
  shown->finish();
  const DatasetReport report = inspect_dataset(output);
  print(a.has("json") ? to_json(report) : to_text(report));
  return 0;
}

int inspect(const Arguments& a) {
  ShownProgress shown("check");
  const DatasetReport report =
      inspect_dataset(a.positional[0], [&](int64_t done, int64_t total) { shown(done, total); });
  shown.finish();
  print(a.has("json") ? to_json(report) : to_text(report));
  return 0;
}

}  // namespace

std::vector<Command> data_forms() {
  std::string formats, help;
  std::vector<std::string> names;
  for (const ImportFormat& f : kFormats) {
    formats += cat(names.empty() ? "" : "|", f.name);
    help += cat(f.name, ": ", f.help, ".\n");
    names.push_back(f.name);
  }
  return {
      {"data import",
       cat("data import ", formats, " INPUT... OUTPUT.h5 [--level char|byte] [--vocabulary FROM] [--force] [--json]"),
       help +
           "OUTPUT.h5 appears when it is complete; data/FORMAT.md describes the format.\n"
           "--vocabulary: use the vocabulary of FROM, so that characters get the token ids that a model trained with\n"
           "it needs. FROM is a run directory, a checkpoint, a dataset (.h5), or a UTF-8 file whose characters are\n"
           "the vocabulary. The text need not use all of them; a character that is not among them is an error.",
       {{"level", "text: a token is a character (UTF-8) or a byte; default: the level of --vocabulary, or char",
         "LEVEL", ""},
        {"vocabulary", "text: the vocabulary of FROM, in place of one made from the text", "FROM", ""},
        {"classes", "idx: number of labels; 0: the largest label plus one", "N", "0"},
        {"force", "replace an existing OUTPUT.h5"},
        {"json", "print a description of the output as one JSON object"}},
       3,
       1 << 20,
       names},
      {"data inspect",
       "data inspect FILE.h5 [--json]",
       "Reads and checks every chunk of a dataset, and describes it.",
       {{"json", "one JSON object"}},
       1,
       1}};
}

int data_command(const App&, const std::vector<std::string>& given) {
  if (!is_first_process()) return 0;  // only one process writes the file
  const Arguments a = parse_arguments(data_forms(), given);
  if (a.help) return 0;
  return a.form == "import" ? import(a) : inspect(a);
}

}  // namespace lockstep
