#include "launch/commands/data_files.h"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "core/base/error.h"
#include "core/io/json.h"
#include "data/import/rearrange.h"
#include "data/samples/inspect.h"
#include "data/samples/verify.h"
#include "data/streams/open_dataset.h"
#include "launch/commands/commands.h"
#include "launch/terminal/output.h"
#include "launch/terminal/shown_progress.h"

namespace lockstep {
namespace {

std::vector<std::string> all_matching(const std::vector<std::string>& patterns) {
  std::vector<std::string> out;
  for (const std::string& pattern : patterns)
    for (const std::string& path : files_matching(pattern)) out.push_back(path);
  return out;
}

int verify(const Arguments& a) {
  const std::vector<std::string> paths = all_matching(a.positional);
  int64_t total = 0, before = 0;
  const auto size_of_file = [](const std::string& path) {
    std::error_code none;
    const auto size = std::filesystem::file_size(path, none);
    return none ? int64_t{0} : static_cast<int64_t>(size);
  };
  for (const std::string& path : paths) total += size_of_file(path);
  ShownProgress shown("verify");
  std::string lines;
  int64_t bad = 0;
  bool damaged = false;
  ExitCode code = ExitCode::kBadData;
  for (const std::string& path : paths) {
    DatasetCheck check;
    bool readable = true;
    try {
      check = verify_dataset(path, [&](int64_t done, int64_t) { shown(before + done, std::max<int64_t>(1, total)); });
    } catch (const Error& e) {  // not there, or not readable: the others are checked all the same
      if (paths.size() == 1) throw;
      check.error = e.what();
      code = e.code();
      readable = false;
    }
    before += size_of_file(path);
    lines += (a.has("json") ? to_json(check, path) : to_text(check, path)) + "\n";
    bad += !check.whole();
    damaged |= !check.whole() && readable;
  }
  shown.finish();
  print_out(lines);
  require(bad == 0, damaged ? ExitCode::kBadData : code, bad, " of ", paths.size(),
          paths.size() == 1 ? " file" : " files",
          " is damaged or cannot be read: restore what is named above or import it again");
  return 0;
}

// "train.h5:0.9,test.h5:0.1"
std::vector<SplitPart> parts_in(const std::string& text) {
  std::vector<SplitPart> out;
  for (size_t at = 0, end; at < text.size(); at = end + 1) {
    end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t colon = part.rfind(':');
    double share = 0;
    const char* last = part.data() + part.size();
    const auto [stop, error] = colon == part.npos ? std::from_chars_result{nullptr, std::errc::invalid_argument}
                                                  : std::from_chars(part.data() + colon + 1, last, share);
    require(error == std::errc() && stop == last && colon > 0, ExitCode::kUsage, "--into ", part,
            ": expected a file and its share, as in train.h5:0.9");
    out.push_back({part.substr(0, colon), share});
  }
  return out;
}

int split(const Arguments& a) {
  require(!a.text("into").empty(), ExitCode::kUsage, "data split: --into A.h5:0.9,B.h5:0.1 is needed");
  std::vector<SplitPart> parts = parts_in(a.text("into"));
  ShownProgress shown("split", "samples");
  SplitOptions options;
  options.seed = static_cast<uint64_t>(a.integer("seed", 0));
  options.by_label = a.has("by-label");
  options.force = a.has("force");
  options.progress = progress_until_stopped(shown, parts[0].path, "the split");
  split_dataset(a.positional[0], parts, options);
  shown.finish();
  for (const SplitPart& p : parts)
    print_out(a.has("json") ? json_line({{"file", p.path}, {"samples", p.samples}}) + "\n"
                            : str(p.path, ": ", p.samples, " samples\n"));
  return 0;
}

int merge(const Arguments& a) {
  const std::string& output = a.positional.back();
  const std::vector<std::string> inputs = all_matching({a.positional.begin(), a.positional.end() - 1});
  ShownProgress shown("merge", "samples");
  MergeOptions options;
  options.keep_normalization = a.has("keep-normalization");
  options.force = a.has("force");
  options.progress = progress_until_stopped(shown, output, "the merge");
  merge_datasets(inputs, output, options);
  shown.finish();
  const DatasetReport report = inspect_dataset(output);
  print_out(a.has("json") ? to_json(report) : to_text(report));
  return 0;
}

}  // namespace

std::vector<Command> data_file_forms() {
  return {
      {"data verify",
       "data verify FILE.h5... [--json]",
       "Checks the seal, the header and every chunk of each FILE, or of each file that a pattern such as\n"
       "'shards/*.h5' names, and prints a line for each: whole, or which chunks and rows are damaged. The exit code\n"
       "is 65 where one is damaged.",
       {{"json", "one JSON object a line"}},
       1},
      {"data split",
       "data split FILE.h5 --into A.h5:0.9,B.h5:0.1 [--seed N] [--by-label] [--force] [--json]",
       "Divides the samples of FILE (records, images, rows of a table) at random among new files, in the shares\n"
       "given; text without records is cut into consecutive parts. Each sample is in one of them, as it was.",
       {{"into", "the new files, each with its share of the samples", "OUT.h5:SHARE,...", ""},
        {"seed", "another seed divides them otherwise", "N", "0"},
        {"by-label", "where samples have a label: each has its share in each file"},
        {"force", "replace existing files"},
        {"json", "print one JSON object a file"}},
       1,
       1},
      {"data merge",
       "data merge A.h5 B.h5... OUT.h5 [--keep-normalization] [--force] [--json]",
       "Joins datasets of one kind, vocabulary and shape, one after the other. Labels with names keep their names.",
       {{"keep-normalization",
         "images, tables: mean and std of A.h5, whose samples keep their values; else those of all samples"},
        {"force", "replace an existing OUT.h5"},
        {"json", "print a description of the output as one JSON object"}},
       2}};
}

int data_file_form(const Arguments& a) {
  if (a.form == "verify") return verify(a);
  return a.form == "split" ? split(a) : merge(a);
}

}  // namespace lockstep
