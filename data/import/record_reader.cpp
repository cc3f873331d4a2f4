#include "data/import/record_reader.h"

#include <algorithm>
#include <charconv>
#include <optional>

#include "core/base/error.h"
#include "data/text/valid_text.h"

namespace lockstep {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF", kBlanks = " \t\r\n";

// Whether an input begins with a list. Standard input is looked at as it is read.
bool begins_with_bracket(std::string_view text) {
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  const size_t at = text.find_first_not_of(kBlanks);
  return at != text.npos && text[at] == '[';
}

// The UTF-16 code unit of an escape such as "\ud83d" at the beginning; nothing for other text.
std::optional<unsigned> escaped_unit(std::string_view text) {
  unsigned unit = 0;
  if (!text.starts_with("\\u") || text.size() < 6) return std::nullopt;
  const auto [end, error] = std::from_chars(text.data() + 2, text.data() + 6, unit, 16);
  if (error != std::errc() || end != text.data() + 6) return std::nullopt;
  return unit;
}
bool is_high(std::optional<unsigned> unit) { return unit && *unit >= 0xD800 && *unit < 0xDC00; }
bool is_low(std::optional<unsigned> unit) { return unit && *unit >= 0xDC00 && *unit < 0xE000; }

// What other programs write as JSON, and is none: NaN and infinity, and escapes of half a surrogate pair.
std::string odd_json(std::string_view record) {
  bool within = false;  // a text in quotes
  for (size_t at = 0; at < record.size(); ++at) {
    const std::string_view rest = record.substr(at);
    if (!within) {
      for (const char* word : {"NaN", "Infinity"})
        if (rest.starts_with(word)) return str(": ", word, " is no JSON; a missing value is null");
    } else if (rest[0] == '\\') {
      const auto unit = escaped_unit(rest);
      if (is_low(unit) || (is_high(unit) && !is_low(escaped_unit(rest.substr(6)))))
        return str(": ", rest.substr(0, 6), " is half of a surrogate pair (UTF-16), which is no character");
      at += unit ? (is_high(unit) ? 11 : 5) : 1;
      continue;
    }
    if (rest[0] == '"') within = !within;
  }
  return "";
}

}  // namespace

std::string why_not_json(std::string_view record) {
  const int64_t bad = first_invalid(record, TextEncoding::kUtf8);
  return bad < 0
             ? odd_json(record)
             : str(": its byte ", bad, " is invalid UTF-8, which JSON is written in; of Latin-1, `iconv -f latin1 -t ",
                   "utf-8 FILE` makes it");
}

RecordReader::RecordReader(const std::string& path, int64_t byte, int64_t number, const std::string& name) {
  std::string head(4096, '\0');
  if (path != "-") {
    InputStream input(path, name);
    head.resize(input.read(head.data(), head.size()));
  }
  if (path == "-" || !begins_with_bracket(head)) {
    lines_.emplace(path, name);
    lines_->skip_to(byte, number);
    return;
  }
  list_.emplace(path, name);
  list_->skip(byte);
  taken_ = byte, line_ = number + 1;
  begun_ = byte > 0;
  if (!begun_ && head.starts_with(kByteOrderMark))
    for (size_t i = 0; i < kByteOrderMark.size(); ++i) take();
}

void RecordReader::fail(std::string_view what) const {
  throw Error(ExitCode::kBadData, str(input().name(), ":", line_, ": ", what));
}

int RecordReader::peek() {
  if (at_ == block_.size()) {
    block_.resize(64 << 10);
    at_ = 0;
    block_.resize(list_->read(block_.data(), block_.size()));
    if (block_.empty()) return -1;
  }
  return static_cast<uint8_t>(block_[at_]);
}

int RecordReader::take() {
  const int byte = peek();
  if (byte < 0) return byte;
  ++at_, ++taken_;
  line_ += byte == '\n';
  return byte;
}

int RecordReader::take_blanks() {
  int byte = peek();
  while (byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n') take(), byte = peek();
  return byte;
}

bool RecordReader::next(std::string_view& record) {
  if (list_) return next_element(record);
  while (lines_->next(record)) {
    too_long_ = lines_->too_long();
    record_line_ = lines_->number();
    if (record_line_ == 1 && record.starts_with(kByteOrderMark)) record.remove_prefix(kByteOrderMark.size());
    if (!too_long_ && record.find_first_not_of(kBlanks) == record.npos) continue;
    const bool whole = record.find_first_not_of("[{ \t") != record.npos;
    require(
        whole || record_line_ > 1 || too_long_, ExitCode::kBadData, lines_->place(),
        ": begins a JSON value of several lines; a file must hold one list of objects, [{...}, {...}], or an object "
        "a line. Where the records are a list within an object, `jq -c '.NAME[]' FILE` writes one a line");
    return true;
  }
  return false;
}

bool RecordReader::next_element(std::string_view& record) {
  if (ended_) return false;
  int byte = take_blanks();
  if (!begun_) {
    begun_ = true;
    take();
    byte = take_blanks();
    if (byte == ']') ended_ = true;
  } else if (byte == ',') {  // an element ends before a comma or the list's end
    take();
    take_blanks();
  } else {
    ended_ = true;
  }
  if (ended_) {
    take();
    if (take_blanks() >= 0) fail("something stands behind the list");
    return false;
  }
  record_line_ = line_;
  take_element();
  record = record_;
  return true;
}

// Up to the comma or bracket behind the element.
void RecordReader::take_element() {
  record_.clear();
  too_long_ = false;
  bool quoted = false, escaped = false;
  for (int64_t depth = 0;;) {
    const int byte = peek();
    if (byte < 0) fail(quoted ? "a text has no end" : "the list has no end");
    if (!quoted && depth == 0 && (byte == ',' || byte == ']')) break;
    take();
    if (record_.size() < LineReader::kLongestLine) record_.push_back(static_cast<char>(byte));
    else too_long_ = true;
    if (quoted) {
      quoted = escaped || byte != '"';
      escaped = !escaped && byte == '\\';
      continue;
    }
    quoted = byte == '"';
    depth += byte == '{' || byte == '[' ? 1 : byte == '}' || byte == ']' ? -1 : 0;
  }
  if (record_.find_first_not_of(kBlanks) == record_.npos) fail("an element of the list is empty");
}

}  // namespace lockstep
