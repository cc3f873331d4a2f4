// TableReader: the rows of a table in a text file, whose columns have names: a CSV or TSV file, whose first row names
// them, or JSON lines, an object a row, whose fields are the columns. In bounded memory. Owns the input; used by one
// thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/hash.h"
#include "core/io/json.h"
#include "data/text/valid_text.h"

namespace lockstep {

struct TableFile {
  std::string path;
  std::string name = {};  // for messages; empty: the path
  TextEncoding encoding = TextEncoding::kUtf8;
  char delimiter = 0;  // between cells; 0: csv_separator (data/import/tables/csv.h)
  bool lines = false;  // a file that is neither CSV by its name nor JSON has a text in each line, of a column `text`
};

class TableReader {
 public:
  virtual ~TableReader() = default;
  const std::vector<std::string>& names() const { return names_; }  // of the columns
  // The cells of the next row, one a column; false at the end. Throws ExitCode::kBadData naming file and line.
  virtual bool next(std::vector<std::string>& cells) = 0;
  virtual int64_t line() const = 0;  // where the row of the last next() begins, from 1
  // A cell of that row as JSON: its text, or what the field of a JSON object holds.
  virtual JsonValue value(const std::vector<std::string>& cells, size_t column) const = 0;
  // Whether that cell is a number of the file's own, with a decimal point, whatever texts of the table look like.
  virtual bool is_number(size_t) const { return false; }
  virtual int64_t bytes_read() const = 0;  // as stored, of
  virtual int64_t size() const = 0;        // so many; 0: not known
  virtual Hash128 hash() const = 0;        // InputStream::hash

  // To be called, before the first row, for each column whose cells are used: the others may come empty. Throws
  // kBadData where no cells are made of what it holds.
  virtual void need(size_t) {}
  virtual std::string names_place() const { return ":1"; }  // where the names stand, behind the table's, in messages
  // The place behind the last row, and to go on there. Of CSV and columnar files.
  struct Position {
    int64_t byte = 0, line = 1;
  };
  virtual Position place() const;
  virtual void skip_to(const Position&);

 protected:
  std::vector<std::string> names_;
};

// A file named as JSON (.jsonl, .ndjson, .json), or that begins as an object or a list does, holds JSON objects; any
// other is CSV. Of JSON the columns are the fields of the first object: an object that lacks one, or where it is null,
// has an empty cell there, and one with another field is an error. Throws ExitCode::kMissingInput and kBadData.
std::unique_ptr<TableReader> open_table(const TableFile& file);

}  // namespace lockstep
