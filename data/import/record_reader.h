// RecordReader: the objects of a JSON input, one at a time, in bounded memory: a line each (JSON lines), or the
// elements of one list, which may take several lines. Which of the two an input is its first character tells. Used by
// one thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "data/import/line_reader.h"

namespace lockstep {

// What is told of a record that is no JSON object: where it has bytes that are no UTF-8, NaN or infinity, or an escape
// of half a surrogate pair; else nothing.
std::string why_not_json(std::string_view record);

class RecordReader {
 public:
  // `byte`, `number`: where to go on, as taken() and number() said of a record; 0: at the beginning.
  // `name`: for messages; empty: the path.
  RecordReader(const std::string& path, int64_t byte, int64_t number, const std::string& name = {});
  // The text of the next record, without a byte order mark; blank lines are no records. It stays valid until the next
  // call. False at the end. Throws ExitCode::kBadData naming file and line for a list that is none: an
  // element of no characters, something behind its end, or no end.
  bool next(std::string_view& record);
  bool too_long() const { return too_long_; }      // only its beginning was kept, of more than LineReader::kLongestLine
  int64_t number() const { return record_line_; }  // the line in which that record begins, from 1
  // Where the next record begins, in bytes of the text, and how many lines have ended before.
  int64_t taken() const { return list_ ? taken_ : lines_->taken(); }
  int64_t lines() const { return list_ ? line_ - 1 : lines_->number(); }
  const InputStream& input() const { return list_ ? *list_ : lines_->input(); }

 private:
  bool next_element(std::string_view& record);
  void take_element();
  int peek();
  int take();
  int take_blanks();  // returns the byte behind them, or -1
  [[noreturn]] void fail(std::string_view what) const;

  std::optional<LineReader> lines_;  // or
  std::optional<InputStream> list_;
  std::string block_, record_;
  size_t at_ = 0;
  int64_t taken_ = 0, line_ = 1, record_line_ = 0;
  bool begun_ = false, ended_ = false, too_long_ = false;  // of a list: its bracket was taken; likewise its end
};

}  // namespace lockstep
