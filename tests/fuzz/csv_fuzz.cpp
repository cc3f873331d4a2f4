// CSV files: what is imported has a finite sample for each row, or the file is refused.
#include <filesystem>

#include "data/import/import.h"
#include "data/samples/inspect.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words = {"\"",  "\"\"",   ",",       "\n",   "\r\n",    "\xEF\xBB\xBF",
                                                      "NA",  "nan",    "inf",     "1e39", "-1e-320", "+1",
                                                      "0x1", "\n,,\n", "x,c,y\n", ";",    "x;y\n",   "1,5"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::string table = fuzz::scratch("table.csv"), output = fuzz::scratch("out.h5");
  fuzz::write_file(table, fuzz::text_of(data, size));
  // The first byte of the table says whether a column of it holds texts.
  if (size > 0 && data[0] % 2 == 0) {
    if (fuzz::is_accepted({ExitCode::kBadData}, [&] { import_csv_text(table, output, {"a", "y"}, {.force = true}); })) {
      fuzz::is_accepted({}, [&] {
        const DatasetReport texts = inspect_dataset(output);
        int64_t records = 0;
        for (int64_t n : texts.per_class) records += n;
        fuzz::expect(texts.records > 0 && records == texts.records, "records are missing");
      });
      std::filesystem::remove(output);
    }
    return 0;
  }
  const bool in_texts = size % 5 < 2;
  const TableOptions columns{
      .label = "y",
      .fill_missing = size % 2 == 0,
      .decimal_comma = size % 3 == 0,
      .thousands = in_texts ? ' ' : '\0',
      .strip = in_texts ? std::vector<std::string>{"$", "kg", "()"} : std::vector<std::string>()};
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { import_csv(table, output, columns, {.force = true}); })) return 0;
  DatasetReport report;
  fuzz::is_accepted({}, [&] { report = inspect_dataset(output); });
  int64_t labelled = 0;
  for (int64_t n : report.per_class) labelled += n;
  fuzz::expect(report.kind == DataKind::kTable && report.count > 0 && labelled == report.count, "rows are missing");
  std::filesystem::remove(output);
  const TableOptions numbers{.target = "y", .fill_missing = true};
  if (!fuzz::is_accepted({ExitCode::kBadData}, [&] { import_csv(table, output, numbers, {.force = true}); })) return 0;
  fuzz::is_accepted({}, [&] { report = inspect_dataset(output); });
  fuzz::expect(report.target == TargetKind::kNumbers && report.target_std > 0, "numbers are missing");
  std::filesystem::remove(output);
  return 0;
}
