#include "data/import/tables/csv.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/error.h"
#include "core/base/log.h"

namespace lockstep {
namespace {
constexpr size_t kCsvBlock = 1 << 20;
constexpr int64_t kMostRowBytes = 16 << 20;
}  // namespace

std::string no_column_text(const std::string& name, const std::vector<std::string>& there) {
  constexpr size_t kMostNamed = 20;
  std::string out = str("has no column '", name, "'; it has ");
  for (size_t i = 0; i < std::min(there.size(), kMostNamed); ++i) out += str(i ? ", '" : "'", there[i], "'");
  return out + (there.size() > kMostNamed ? str(" and ", there.size() - kMostNamed, " more") : "");
}

CsvReader::CsvReader(const std::string& path, char separator, TextEncoding encoding, const std::string& name)
    : input_(path, name), separator_(separator), encoding_(encoding) {
  fill();
  if (block_.starts_with("\xEF\xBB\xBF")) in_block_ = 3, at_ = 3;
}

void CsvReader::fail(const std::string& what) const {
  throw Error(ExitCode::kBadData, str(path(), ":", line_, ": ", what));
}

bool CsvReader::fill() {
  block_.resize(kCsvBlock);
  in_block_ = 0;
  size_t got = 0;
  for (size_t more = 1; more > 0 && got < block_.size(); got += more)
    more = input_.read(block_.data() + got, block_.size() - got);
  block_.resize(got);
  return got > 0;
}

void CsvReader::skip_to(const Position& place) {
  const auto left = static_cast<int64_t>(block_.size() - in_block_);
  const int64_t forward = place.byte - at_;
  check(forward >= 0, "a place before the one that was read");
  if (forward > left) input_.skip(forward - left);
  in_block_ += static_cast<size_t>(std::min(forward, left));
  at_ = place.byte;
  line_ = place.line;
}

int CsvReader::peek() {
  if (in_block_ == block_.size() && !fill()) return -1;
  return static_cast<uint8_t>(block_[in_block_]);
}

int CsvReader::ahead(size_t at) {
  while (at >= block_.size() - in_block_) {
    block_.erase(0, in_block_);
    in_block_ = 0;
    const size_t before = block_.size();
    block_.resize(before + kCsvBlock);
    block_.resize(before + input_.read(block_.data() + before, kCsvBlock));
    if (block_.size() == before) return -1;
  }
  return static_cast<uint8_t>(block_[in_block_ + at]);
}

// A quote that is closed on its line, with no tab between, quotes the cell. Where tabs or line ends stand between both
// quotes, they may be characters of two cells: they are if each line, read without quotes, is a row of the table.
bool CsvReader::begins_quoted(size_t column) {
  const auto as_text = [&] {
    if (!std::exchange(has_warned_, true))  // once for both passes of an import, too
      log_warning_once(str(path(),
                           ": a quote at the beginning of a cell that is not quoted as a whole is kept as text, first "
                           "in line ",
                           line_));
    return false;
  };
  size_t at = 1, cells = column + 1;
  int64_t line_ends = 0;
  bool all_rows = true, row_between = false, tabs = false;
  const auto end_line = [&] {
    const bool is_row = cells == columns_;
    all_rows &= is_row;
    return is_row;
  };
  for (int byte = 0; byte != '"' || ahead(at) == '"'; ++at) {
    if (byte == '"') ++at;  // a doubled one
    byte = ahead(at);
    if (byte < 0 || static_cast<int64_t>(at) > kMostRowBytes) return as_text();
    cells += byte == '\t', tabs |= byte == '\t';
    if (byte != '\n') continue;
    row_between |= end_line() && line_ends > 0;
    ++line_ends, cells = 1;
  }
  int after = ahead(at);
  if (after != '\t' && after != '\n' && after != '\r' && after >= 0) return as_text();
  if (columns_ == 0 || (line_ends == 0 && !tabs)) return true;
  for (; after >= 0 && after != '\n'; after = ahead(++at)) cells += after == '\t';
  end_line();
  if (all_rows) return as_text();
  if (row_between)
    fail(str("column ", column + 1, ": a quoted cell runs over ", line_ends + 1,
             " lines, some of which are rows by themselves; where its quote is a character of the cell, write the cell "
             "within quotes and its quotes doubled"));
  return true;
}

void CsvReader::took(size_t count) {
  in_block_ += count;
  at_ += static_cast<int64_t>(count);
  if (at_ - row_begin_ > kMostRowBytes)
    fail(str("a row of more than ", kMostRowBytes >> 20, " MiB begins at line ", row_line_));
}

int CsvReader::take() {
  const int byte = peek();
  if (byte < 0) return byte;
  if (byte == 0) fail("has a byte of zero: it is not a text file");
  took(1);
  if (byte == '\n') ++line_;
  return byte;
}

// Takes what stands in the block before one of these bytes, or one of zero, or its end.
void CsvReader::take_until(const char* ends, std::string& cell) {
  const size_t count = std::strcspn(block_.c_str() + in_block_, ends);
  cell.append(block_, in_block_, count);
  took(count);
}

bool CsvReader::read_cell(std::string& cell, size_t column, bool& quoted) {
  cell.clear();
  const bool tabs = separator_ == '\t';
  quoted = peek() == '"' && (!tabs || begins_quoted(column));
  if (quoted) {
    take();
    for (;;) {
      take_until("\"\n", cell);
      const int byte = take();
      if (byte < 0) fail(str("a quote of the row at line ", row_line_, " is never closed"));
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
  const char ends[] = {separator_, '\n', '\r', tabs ? '\n' : '"', 0};
  for (;;) {
    take_until(ends, cell);
    const int byte = take();
    if (byte == separator_) return true;
    if (byte < 0 || byte == '\n') return false;
    if (byte == '\r' && (peek() == '\n' || peek() < 0)) continue;
    if (byte == '"' && !tabs)
      fail("a quote stands within a cell; such a cell is quoted as a whole, and its quotes doubled");
    cell.push_back(static_cast<char>(byte));
  }
}

void CsvReader::decode(std::string& cell, size_t column, int64_t begin, bool quoted) const {
  if (std::all_of(cell.begin(), cell.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; })) return;
  const int64_t bad = first_invalid(cell, encoding_);
  if (bad < 0) {
    if (encoding_ != TextEncoding::kUtf8) cell = in_utf8(cell, encoding_);
    return;
  }
  const int64_t quotes = quoted ? 1 + std::count(cell.begin(), cell.begin() + bad, '"') : 0;
  constexpr const char* kDigits = "0123456789ABCDEF";
  const auto byte = static_cast<uint8_t>(cell[static_cast<size_t>(bad)]);
  const std::string hex{kDigits[byte >> 4], kDigits[byte & 15]};
  throw Error(
      ExitCode::kBadData,
      str(path(), ":", row_line_, ": column ", column + 1, ": byte ", begin + quotes + bad, " of the table (0x", hex,
          ") is ",
          encoding_ == TextEncoding::kUtf8
              ? "invalid UTF-8; name the table's encoding (--encoding latin-1 or windows-1252), or convert it to UTF-8"
              : "no character of windows-1252; give --encoding latin-1, or convert the table to UTF-8"));
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
    const int64_t begin = at_;
    bool quoted = false;
    more = read_cell(cells[count], count, quoted);
    decode(cells[count], count, begin, quoted);
  }
  cells.resize(count);
  if (columns_ == 0) columns_ = count;
  require(count == columns_, ExitCode::kBadData, path(), ":", row_line_, ": has ", count,
          " cells, but the first row has ", columns_);
  return true;
}

char csv_separator(const std::string& path, char given) {
  if (given != 0) return given;
  for (const char* end : {".tsv", ".tsv.gz", ".tsv.zst"})
    if (path.ends_with(end)) return '\t';
  if (path == "-") return ',';
  std::string head(kCsvBlock, '\0');
  InputStream input(path);
  head.resize(input.read(head.data(), head.size()));
  bool quoted = false, semicolon = false, tab = false;
  for (char c : head) {
    quoted ^= c == '"';
    if (quoted) continue;
    if (c == ',') return ',';
    if (c == '\n' && (semicolon || tab)) break;
    semicolon |= c == ';';
    tab |= c == '\t';
  }
  return semicolon ? ';' : tab ? '\t' : ',';
}

}  // namespace lockstep
