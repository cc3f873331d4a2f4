// Compiled in place of columnar_table.cpp in builds without LOCKSTEP_PARQUET.
#include "core/base/error.h"
#include "data/import/other_formats.h"
#include "data/import/tables/columnar_table.h"

namespace lockstep {

bool reads_columnar() { return false; }

std::unique_ptr<TableReader> open_columnar(const std::vector<std::string>& files) {
  for (const std::string& path : files) refuse_other_formats(path, false);
  throw Error(ExitCode::kBadData, str(files.at(0), ": is neither Parquet nor Arrow, and this build reads neither"));
}

}  // namespace lockstep
