#include "data/csv.h"

#include <algorithm>

#include "core/base/error.h"

namespace lockstep {
namespace {
constexpr int64_t kCsvBlock = 1 << 20, kMostRowBytes = 16 << 20;
}  // namespace

CsvReader::CsvReader(const std::string& path, char separator) : file_(path), separator_(separator) {
  char mark[3] = {};
  if (file_.size >= 3) file_.read(0, mark, 3);
  if (std::string_view(mark, 3) == "\xEF\xBB\xBF") at_ = 3;
}

void CsvReader::fail(const std::string& what) const {
  throw Error(ExitCode::kBadData, cat(file_.path, ":", line_, ": ", what));
}

int CsvReader::peek() {
  if (in_block_ == block_.size()) {
    const int64_t count = std::min(kCsvBlock, file_.size - at_);
    if (count == 0) return -1;
    block_.resize(static_cast<size_t>(count));
    file_.read(at_, block_.data(), count);
    in_block_ = 0;
  }
  return static_cast<uint8_t>(block_[in_block_]);
}

int CsvReader::take() {
  const int byte = peek();
  if (byte < 0) return byte;
  if (byte == 0) fail("has a byte of zero: it is not a text file");
  ++in_block_;
  ++at_;
  if (at_ - row_begin_ > kMostRowBytes)
    fail(cat("a row of more than ", kMostRowBytes >> 20, " MiB begins at line ", row_line_));
  if (byte == '\n') ++line_;
  return byte;
}

bool CsvReader::read_cell(std::string& cell) {
  cell.clear();
  if (peek() == '"') {
    take();
    for (;;) {
      const int byte = take();
      if (byte < 0) fail(cat("a quote of the row at line ", row_line_, " is never closed"));
      if (byte != '"') {
        cell.push_back(static_cast<char>(byte));
      } else if (peek() == '"') {
        cell.push_back(static_cast<char>(take()));
      } else {
        break;
      }
    }
    const int after = peek();
    if (after != separator_ && after != '\n' && after != '\r' && after >= 0)
      fail("something follows the closing quote of a cell; quotes within a cell are doubled");
  }
  for (;;) {
    const int byte = take();
    if (byte == separator_) return true;
    if (byte < 0 || byte == '\n') return false;
    if (byte == '\r' && (peek() == '\n' || peek() < 0)) continue;
    if (byte == '"') fail("a quote stands within a cell; such a cell is quoted as a whole, and its quotes doubled");
    cell.push_back(static_cast<char>(byte));
  }
}

bool CsvReader::next(std::vector<std::string>& cells) {
  while (peek() == '\n' || peek() == '\r') row_begin_ = at_, take();
  if (peek() < 0) return false;
  row_line_ = line_;
  row_begin_ = at_;
  size_t count = 0;
  bool more = true;
  for (; more; ++count) {
    if (cells.size() <= count) cells.emplace_back();
    more = read_cell(cells[count]);
  }
  cells.resize(count);
  if (columns_ == 0) columns_ = count;
  require(count == columns_, ExitCode::kBadData, file_.path, ":", row_line_, ": has ", count,
          " cells, but the first row has ", columns_);
  return true;
}

char csv_separator(const std::string& path) { return path.ends_with(".tsv") ? '\t' : ','; }

}  // namespace lockstep
