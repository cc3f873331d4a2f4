#include "core/base/log.h"
#include "data/import.h"
#include "launch/command_line.h"
#include "launch/commands.h"
#include "launch/did_you_mean.h"
#include "launch/progress.h"
#include "launch/world.h"

namespace lockstep {
namespace {

// One progress display for a callback (done, total).
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

 private:
  std::string title_;
  std::unique_ptr<Progress> progress_;
};

int import(const std::vector<std::string>& given) {
  const Command command{
      "data import",
      "data import text|idx INPUT... OUTPUT.h5 [--level char|byte] [--force]",
      "text: joins the INPUT files in order. idx: INPUT is an image file and its label file (IDX, gzip or plain).\n"
      "OUTPUT.h5 appears when it is whole; data/FORMAT.md describes it.",
      {{"level", "text: a token is a character (UTF-8, vocabulary from the text) or a byte", "LEVEL", "char"},
       {"classes", "idx: number of labels; 0: the largest label plus one", "N", "0"},
       {"force", "replace an existing OUTPUT.h5"}},
      3};
  const Arguments a = parse_arguments(command, given);
  if (a.help) return 0;
  const std::string kind = a.positional.front(), output = a.positional.back();
  const std::vector<std::string> inputs(a.positional.begin() + 1, a.positional.end() - 1);
  ImportOptions options;
  options.force = a.has("force");
  auto shown = std::make_shared<ShownProgress>("import");
  options.progress = [shown](int64_t done, int64_t total) { (*shown)(done, total); };
  if (kind == "text") {
    const std::string level = a.text("level");
    require(level == "char" || level == "byte", ExitCode::kUsage, "--level ", level, ": must be char or byte");
    import_text(inputs, output, level == "byte" ? TextLevel::kByte : TextLevel::kChar, options);
  } else if (kind == "idx") {
    require(inputs.size() == 2, ExitCode::kUsage,
            "data import idx: give the image file, the label file and the output");
    import_idx(inputs[0], inputs[1], output, a.integer("classes"), options);
  } else {
    throw Error(ExitCode::kUsage, cat("data import: there is no kind '", kind, "'", did_you_mean(kind, {"text", "idx"}),
                                      "; text or idx"));
  }
  shown.reset();
  options.progress = {};
  print(to_text(inspect_dataset(output)));
  return 0;
}

int inspect(const std::vector<std::string>& given) {
  const Command command{
      "data inspect", "data inspect FILE.h5", "Reads and checks every chunk of a dataset, and describes it.", {}, 1, 1};
  const Arguments a = parse_arguments(command, given);
  if (a.help) return 0;
  ShownProgress shown("check");
  print(to_text(inspect_dataset(a.positional[0], [&](int64_t done, int64_t total) { shown(done, total); })));
  return 0;
}

}  // namespace

int data_command(const App&, const std::vector<std::string>& given) {
  const std::vector<std::string> rest(given.empty() ? given.begin() : given.begin() + 1, given.end());
  if (!is_first_process()) return 0;  // a file has one writer
  if (!given.empty() && given[0] == "import") return import(rest);
  if (!given.empty() && given[0] == "inspect") return inspect(rest);
  if (!given.empty() && given[0] == "--help") {
    print("usage: lockstep data import text|idx INPUT... OUTPUT.h5\n       lockstep data inspect FILE.h5\n");
    return 0;
  }
  throw Error(ExitCode::kUsage,
              cat("lockstep data: ", given.empty() ? "say what: " : cat("there is no '", given[0], "': "),
                  "import or inspect"));
}

}  // namespace lockstep
