#include "core/base/error.h"
#include "data/import/import.h"
#include "data/import/other_formats.h"
#include "data/import/tables/columnar_table.h"
#include "data/import/tables/table_import.h"

namespace lockstep {
namespace {

TableSource columnar_source(const std::vector<std::string>& files) {
  for (const std::string& path : files)
    require(path != "-", ExitCode::kUsage,
            "a columnar file is read from its end, which standard input has not: name it");
  const std::string name = files.size() == 1 ? files[0] : str(files.at(0), " and ", files.size() - 1, " more");
  return {[files] { return open_columnar(files); }, name, files};
}

}  // namespace

void import_csv(const std::string& table, const std::string& output, const TableOptions& columns,
                const ImportOptions& options) {
  require(table != "-", ExitCode::kUsage,
          "a table is read twice, and standard input (-) can be read once: name a file");
  refuse_other_formats(table, false);
  const TableFile file{table, columns.name, columns.encoding, columns.delimiter};
  import_table({[&] { return open_table(file); }, columns.name.empty() ? table : columns.name, {table}}, output,
               columns, options);
}

void import_csv_text(const std::string& table, const std::string& output, const CsvTextColumns& columns,
                     const ImportOptions& options) {
  refuse_other_formats(table, false);
  const TableFile file{table, "", columns.encoding, columns.delimiter};
  import_table_texts({[&] { return open_csv(file); }, table == "-" ? "standard input" : table, {table}}, output,
                     columns, options);
}

void import_columnar(const std::vector<std::string>& files, const std::string& output, const TableOptions& columns,
                     const ImportOptions& options) {
  import_table(columnar_source(files), output, columns, options);
}

void import_columnar_texts(const std::vector<std::string>& files, const std::string& output,
                           const CsvTextColumns& columns, const ImportOptions& options) {
  import_table_texts(columnar_source(files), output, columns, options);
}

}  // namespace lockstep
