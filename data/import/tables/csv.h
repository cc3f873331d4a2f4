// CsvReader: the rows of a CSV or TSV file (RFC 4180), plain or compressed, in bounded memory. Cells are given in
// UTF-8, whatever the encoding of the file. Owns the input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/import/input_stream.h"
#include "data/text/valid_text.h"

namespace lockstep {

// "has no column 'x'; it has 'a', 'b'": what a table that lacks a column is told to have.
std::string no_column_text(const std::string& name, const std::vector<std::string>& there);

// Cells are separated by `separator`; one in double quotes may hold separators, line ends and doubled quotes. Lines end
// with \n or \r\n. A byte order mark (UTF-8) at the beginning is skipped, and so are empty lines. Where tabs separate
// cells, many programs write no quotes around them, and a quote is a character of the cell unless it begins a whole
// quoted cell: the first such cell is warned of.
class CsvReader {
 public:
  // Throws ExitCode::kMissingInput or kBadData. `name`: for messages; empty: the path.
  CsvReader(const std::string& path, char separator, TextEncoding encoding = TextEncoding::kUtf8,
            const std::string& name = {});
  // The next row; false at the end. Throws kBadData naming file and line: for a row that has not as many cells as the
  // first, a quote within or after a cell that is not doubled, a quote that is never closed (both: but of tabs), a
  // quoted cell over several lines some of which are rows by themselves (of tabs), bytes of zero, bytes that are no
  // characters in the encoding (with their offset), or a row of more than 16 MiB.
  bool next(std::vector<std::string>& cells);
  int64_t line() const { return row_line_; }  // where the row of the last next() begins, from 1
  const std::string& path() const { return input_.name(); }
  int64_t bytes_read() const { return input_.taken(); }  // as stored, of
  int64_t size() const { return input_.size(); }         // so many; 0: not known
  Hash128 hash() const { return input_.hash(); }         // InputStream::hash; after the last row: of the whole table
  // The place behind the last row, and to go on there: to be called after the first row was read.
  struct Position {
    int64_t byte = 0, line = 1;
  };
  Position place() const { return {at_, line_}; }
  void skip_to(const Position& place);

 private:
  bool fill();
  void took(size_t count);  // bytes of the block
  void take_until(const char* ends, std::string& cell);
  int peek();                         // the next byte, or -1 at the end
  int ahead(size_t at);               // the same of the one that follows so many bytes later
  bool begins_quoted(size_t column);  // a cell of this column, which begins with a quote in tab-separated text
  int take();
  bool read_cell(std::string& cell, size_t column, bool& quoted);  // true where another cell of the row follows
  // A cell that begins at this byte of the input, where it is quoted with the quote.
  void decode(std::string& cell, size_t column, int64_t begin, bool quoted) const;
  [[noreturn]] void fail(const std::string& what) const;

  InputStream input_;
  char separator_;
  TextEncoding encoding_;
  std::string block_;
  size_t in_block_ = 0;
  int64_t at_ = 0, line_ = 1, row_line_ = 1, row_begin_ = 0;
  size_t columns_ = 0;
  bool has_warned_ = false;  // of a quote that is text
};

// `given`, where it is not 0. Else tab for names that end in ".tsv", also before ".gz" or ".zst"; otherwise a comma, or
// a semicolon or tab where the first row has such and no comma outside of quotes. Standard input ("-") is not looked
// at.
char csv_separator(const std::string& path, char given = 0);

}  // namespace lockstep
