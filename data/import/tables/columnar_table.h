// Tables in columnar files: Parquet, and Arrow's files and streams (Feather's second version). The only door to Arrow's
// library, in builds with LOCKSTEP_PARQUET; in others columnar_absent.cpp stands in. Plain functions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/import/tables/table_reader.h"

namespace lockstep {

bool reads_columnar();  // whether this build does

// The rows of the files, one file after the other, by batches, in bounded memory: of Parquet by pages, of Arrow by the
// batches that the file has. All files have the columns of the first, by name and order; an index that pandas stored
// (__index_level_0__) is none of them, which is warned of. line() counts rows from 1 through all files. A cell is the
// text that pandas' to_csv writes: nothing for null and NaN, True and False, the shortest digits that give a number
// back (of floats of 32 bits pandas may spell them otherwise); but integers beside nulls keep their digits. Types:
// booleans, integers, floats of 32 and 64 bits, decimals, texts, dictionaries of these; others are refused by need().
// Throws ExitCode::kMissingInput, and kBadData naming the file, and the column and its type.
std::unique_ptr<TableReader> open_columnar(const std::vector<std::string>& files);

}  // namespace lockstep
