// CsvReader: the rows of a CSV or TSV file (RFC 4180), in bounded memory. Owns the file.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/plain_file.h"

namespace lockstep {

// Cells are separated by `separator`; one in double quotes may hold separators, line ends and doubled quotes. Lines end
// with \n or \r\n. A byte order mark (UTF-8) at the beginning is skipped, and so are empty lines.
class CsvReader {
 public:
  // Throws ExitCode::kMissingInput or kBadData.
  CsvReader(const std::string& path, char separator);
  // The next row; false at the end. Throws kBadData naming file and line: for a row that has not as many cells as the
  // first, a quote within or after a cell that is not doubled, a quote that is never closed, bytes of zero, or a row of
  // more than 16 MiB.
  bool next(std::vector<std::string>& cells);
  int64_t line() const { return row_line_; }  // where the row of the last next() begins, from 1
  const std::string& path() const { return file_.path; }
  int64_t bytes_read() const { return at_; }
  int64_t size() const { return file_.size; }

 private:
  int peek();  // the next byte, or -1 at the end
  int take();
  bool read_cell(std::string& cell);  // true where another cell of the row follows
  [[noreturn]] void fail(const std::string& what) const;

  InputFile file_;
  char separator_;
  std::string block_;
  size_t in_block_ = 0;
  int64_t at_ = 0, line_ = 1, row_line_ = 1, row_begin_ = 0;
  size_t columns_ = 0;
};

// Tab for names that end in ".tsv", otherwise a comma.
char csv_separator(const std::string& path);

}  // namespace lockstep
