// ImportedColumn: what an import of a table finds out of a column while it reads the rows for the first time.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "data/samples/cell_form.h"
#include "data/samples/channel_sums.h"
#include "data/samples/label_index.h"

namespace lockstep {

// It is one of numbers until a cell is none.
struct ImportedColumn {
  std::string name;
  bool used = true, categories = false;
  bool index = false;               // a first column without a name
  bool named = false;               // by TableOptions::categories
  int64_t numbers = 0, others = 0;  // of its values, where it is not named
  std::string other;                // the first one that is no number, which makes it one of categories, and
  int64_t other_line = 0;           // where it stands
  // Several such, each once, and where they stand.
  std::vector<std::pair<std::string, int64_t>> first_others;
  int64_t missing = 0, missing_line = 0;
  int64_t unknown = 0, unknown_line = 0;  // of values that are no category of ImportOptions::like, and the first
  FeatureMoments moments;
  std::optional<DateForm> date;      // of dates or times, which are numbers
  std::optional<uint64_t> stripped;  // of the first number, a bit for each text of NumberForm::strip; and the first
  uint64_t otherwise_stripped = 0;   // one that has others, and
  int64_t otherwise_line = 0;        // where that stands
  bool given = false;                // by ImportOptions::like, and so are
  bool filled = false;               // missing values
  double mean = 0, std = 1;          // of numbers; otherwise set when all rows were seen
  double offset = 0;                 // DatasetHeader::offset, of numbers; likewise
  std::set<std::string> texts;  // numbers' too, as long as there are few: the column may yet turn out as categories
  LabelNumbers places;          // of categories: the place of each text in their order
  int64_t too_many_line = 0;    // where there are more texts than features are possible
  int64_t feature = 0;          // its first

  int64_t features() const { return categories ? static_cast<int64_t>(texts.size()) : 1; }
  // Takes a cell of a column of dates; returns why it is refused, as the end of a message, or nothing.
  std::string add_date(const std::string& cell);
  // `line`: of a text that is no number; else 0.
  void add_text(std::string text, int64_t line);
  void add_stripped(uint64_t texts, int64_t line);
};

// Refuses a column of texts that are numbers or dates, or most of which are, unless it is given or named: throws
// ExitCode::kBadData with `path`, line, column, texts and the options that read them.
void require_meant(const ImportedColumn& column, const std::string& path, const NumberForm& form);
// "; --thousands , reads such cells as numbers": what reads a cell that is no number in its column, else `otherwise`.
// `like`: ImportOptions::like, or empty.
std::string how_to_read(const std::string& cell, const ImportedColumn& column, const NumberForm& form,
                        const std::string& like, const std::string& otherwise);
// Warns of values of a column, in so many rows, that are missing, unknown or nearly all different.
void warn_of_values(const ImportedColumn& column, const std::string& path, int64_t rows, const std::string& like);
// Of a cell that is missing: " ('NA' stands for none; --missing names the texts that do)", or nothing of an empty one.
std::string stands_for_none(const std::string& cell);
// DatasetHeader::columns of the columns in that order. `target`: of numbers, or null. `missing`: TableOptions::missing.
std::string description(const std::vector<ImportedColumn>& columns, const std::vector<size_t>& order,
                        const ImportedColumn* target, const std::vector<std::string>& missing, const NumberForm& form);
// Warns of numbers of a column that have different texts around them.
void warn_of_units(const ImportedColumn& column, const std::string& path, const NumberForm& form);

}  // namespace lockstep
