// Files of other programs that no import reads, by their first bytes, and what makes something of them that one does.
// Plain functions.
#pragma once

#include <string>

namespace lockstep {

// Throws ExitCode::kBadData naming the file, its format and the command that converts it, where `path` is Parquet,
// Arrow or Feather, a pickle, a workbook (.xlsx) or a database of SQLite; kMissingInput where it is a folder that
// `datasets` saved. Standard input ("-") is not looked at. `records`: the way out are JSON lines, else a table.
void refuse_other_formats(const std::string& path, bool records);

}  // namespace lockstep
