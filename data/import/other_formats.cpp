#include "data/import/other_formats.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "core/base/error.h"
#include "core/base/plain_file.h"
#include "data/import/tables/columnar_table.h"

namespace lockstep {
namespace {

using namespace std::string_view_literals;

struct OtherFormat {
  std::string_view begin, name;
  std::string_view reads;  // an expression of Python that reads FILE as a table of pandas
  bool columnar = false;   // `data import parquet` reads it, in builds that do
};
constexpr OtherFormat kFormats[] = {
    {"PAR1"sv, "Parquet", "pandas.read_parquet('FILE')", true},
    {"ARROW1"sv, "Arrow (Feather)", "pandas.read_feather('FILE')", true},
    {"FEA1"sv, "Feather", "pandas.read_feather('FILE')"},
    {"\xFF\xFF\xFF\xFF"sv, "a stream of Arrow", "pyarrow.ipc.open_stream('FILE').read_pandas()", true},
    {"SQLite format 3\0"sv, "a database of SQLite",
     "pandas.read_sql('select * from TABLE', __import__('sqlite3').connect('FILE'))"},
    {"PK\3\4"sv, "a workbook, or another archive", "pandas.read_excel('FILE')"},
    {"\x80\2"sv, "a pickle", "pandas.read_pickle('FILE')"},
    {"\x80\3"sv, "a pickle", "pandas.read_pickle('FILE')"},
    {"\x80\4"sv, "a pickle", "pandas.read_pickle('FILE')"},
    {"\x80\5"sv, "a pickle", "pandas.read_pickle('FILE')"}};

std::string with_file(std::string_view text, const std::string& path) {
  std::string out(text);
  const size_t at = out.find("FILE");
  return out.replace(at, 4, path);
}

}  // namespace

void refuse_other_formats(const std::string& path, bool records) {
  if (path == "-") return;
  const std::string writes = records ? str(".to_json('", path, ".jsonl', orient='records', lines=True)")
                                     : str(".to_csv('", path, ".csv', index=False)");
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    const bool saved = std::filesystem::exists(path + "/dataset_info.json", error) ||
                       std::filesystem::exists(path + "/dataset_dict.json", error);
    require(!saved, ExitCode::kMissingInput, path, ": is a dataset of Hugging Face's `datasets`, in Arrow's format, ",
            "which is not read: python3 -c \"import datasets; datasets.load_from_disk('", path, "').",
            records ? "to_json" : "to_csv", "('", path, records ? ".jsonl" : ".csv",
            "')\" (with ['train'] behind it where ", "there are splits) makes a file of it that is");
    return;
  }
  const InputFile file(path);
  std::string head(static_cast<size_t>(std::min<int64_t>(file.size, 16)), '\0');
  file.read(0, head.data(), static_cast<int64_t>(head.size()));
  for (const OtherFormat& f : kFormats) {
    if (!head.starts_with(f.begin)) continue;
    const bool arrow = f.reads.starts_with("pyarrow");
    const char* why = !f.columnar        ? "is not read"
                      : reads_columnar() ? "`lockstep data import parquet` reads, and nothing else does"
                                         : "only a build with LOCKSTEP_PARQUET reads (CONTRIBUTING.md)";
    throw Error(ExitCode::kBadData,
                str(path, ": is ", f.name, ", which ", why, ": python3 -c \"import ", arrow ? "pyarrow" : "pandas",
                    "; ", with_file(f.reads, path), writes, "\" makes a file of it that is read"));
  }
}

}  // namespace lockstep
