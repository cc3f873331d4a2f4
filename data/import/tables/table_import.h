// What imports of tables do with any TableReader. Plain functions.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "data/import/import.h"
#include "data/import/tables/table_reader.h"

namespace lockstep {

// A table as the importers read it, perhaps twice.
struct TableSource {
  std::function<std::unique_ptr<TableReader>()> open;  // at the first row
  std::string name;                                    // for messages
  std::vector<std::string> files;
};

// import_csv() and import_csv_text() of the source, with the same errors. Of the options those that say how a text is
// read have no effect.
void import_table(const TableSource& source, const std::string& output, const TableOptions& columns,
                  const ImportOptions& options);
void import_table_texts(const TableSource& source, const std::string& output, const CsvTextColumns& columns,
                        const ImportOptions& options);

// The rows of a CSV file, whatever its name.
std::unique_ptr<TableReader> open_csv(const TableFile& file);

}  // namespace lockstep
