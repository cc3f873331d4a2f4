#include <functional>

#include "core/io/json.h"
#include "core/io/pending_file.h"
#include "data/samples/inspect.h"
#include "data/samples/sample_kind.h"
#include "data/samples/show.h"
#include "launch/arguments/command_line.h"
#include "launch/commands/commands.h"
#include "launch/commands/data_files.h"
#include "launch/commands/import_command.h"
#include "launch/terminal/output.h"
#include "launch/terminal/shown_progress.h"
#include "launch/world/world.h"

namespace lockstep {
namespace {

int inspect(const Arguments& a) {
  ShownProgress shown("check");
  const DatasetReport report = inspect_dataset(a.positional[0], std::ref(shown));
  shown.finish();
  print_out(a.has("json") ? to_json(report) : to_text(report));
  return 0;
}

int show(const Arguments& a) {
  const std::string &path = a.positional[0], &output = a.text("to");
  const int64_t index = a.integer("index", 0);
  const auto file = open_dataset_file(path, 16 << 20);
  const SampleKind& kind = sample_kind(file->header.kind);
  require(kind.has_pixels() || output.empty(), ExitCode::kUsage, "--to: ", path, " holds no images");
  ShownSample shown = kind.show(file, index);
  if (shown.png) {
    require(!output.empty(), ExitCode::kUsage, path, ": holds images; name a file for the image: --to IMAGE.png");
    PendingFile pending(output, false);
    const Descriptor to = open_to_append(pending.temporary());
    require(to && write_all(to, *shown.png), ExitCode::kStorage, output, ": cannot be written");
    pending.commit();
    shown.json.emplace_back("output", output);
    shown.text += str(": ", output, "\n");
  }
  print_out(a.has("json") ? json_line(shown.json) + "\n" : shown.text);
  return 0;
}

}  // namespace

std::vector<Command> data_forms() {
  std::vector<Command> forms = {
      import_form(),
      {"data show",
       "data show FILE.h5 [--index N] [--to IMAGE.png] [--json]",
       str("Prints a record of a dataset of text, or, where it has none, a stretch of ", kShownTokens,
           " tokens. Parts on which there is\nno loss stand between white square brackets. An image is written as it "
           "is stored, as a PNG file,\nand to its right its mask, where it has one, in a colour for each class."),
       {{"index", "which, from 0", "N", "0"},
        {"to", "where an image is written", "IMAGE.png", ""},
        {"json", "one JSON object"}},
       1,
       1},
      {"data inspect",
       "data inspect FILE.h5 [--json]",
       "Reads and checks every chunk of a dataset, and describes it: lengths, duplicates, how much of the vocabulary\n"
       "or how many images of each label there are.",
       {{"json", "one JSON object"}},
       1,
       1}};
  for (Command& form : data_file_forms()) forms.push_back(std::move(form));
  return forms;
}

int data_command(const App& app, const std::vector<std::string>& given) {
  if (!is_first_process()) return 0;  // only one process writes the file
  const Arguments a = parse_arguments(data_forms(), given);
  if (a.help) return 0;
  if (a.form == "import") return import_data(app, a);
  if (a.form == "inspect") return inspect(a);
  return a.form == "show" ? show(a) : data_file_form(a);
}

}  // namespace lockstep
