#include "data/import/tables/table_reader.h"

#include <algorithm>
#include <string_view>
#include <unordered_map>

#include "core/base/error.h"
#include "core/io/json_record.h"
#include "data/import/line_reader.h"
#include "data/import/record_reader.h"
#include "data/import/tables/csv.h"
#include "data/import/tables/table_import.h"

namespace lockstep {
namespace {

class CsvTable final : public TableReader {
 public:
  explicit CsvTable(const TableFile& file)
      : rows_(file.path, csv_separator(file.path, file.delimiter), file.encoding, file.name) {
    require(rows_.next(names_), ExitCode::kBadData, rows_.path(), ": is empty; the first row names the columns");
  }
  bool next(std::vector<std::string>& cells) override { return rows_.next(cells); }
  int64_t line() const override { return rows_.line(); }
  JsonValue value(const std::vector<std::string>& cells, size_t column) const override { return cells[column]; }
  int64_t bytes_read() const override { return rows_.bytes_read(); }
  int64_t size() const override { return rows_.size(); }
  Hash128 hash() const override { return rows_.hash(); }
  Position place() const override { return {rows_.place().byte, rows_.place().line}; }
  void skip_to(const Position& place) override { rows_.skip_to({place.byte, place.line}); }

 private:
  CsvReader rows_;
};

std::string cell_of(const JsonValue& value) {
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* json = std::get_if<JsonText>(&value)) return json->text;
  if (const auto* integer = std::get_if<int64_t>(&value)) return str(*integer);
  if (const auto* truth = std::get_if<bool>(&value)) return str(*truth);
  const auto* number = std::get_if<double>(&value);
  return number ? str(*number) : "";
}

class JsonTable final : public TableReader {
 public:
  explicit JsonTable(const TableFile& file) : records_(file.path, 0, 0, file.name), encoding_(file.encoding) {
    first_ = read();
    require(first_, ExitCode::kBadData, records_.input().name(), ": is empty; the first object names the columns");
    for (const auto& [name, value] : object_) places_.emplace(name, names_.size()), names_.push_back(name);
  }

  bool next(std::vector<std::string>& cells) override {
    if (!first_ && !read()) return false;
    first_ = false;
    cells.assign(names_.size(), "");
    values_.assign(names_.size(), nullptr);
    for (auto& [name, value] : object_) {
      const auto place = places_.find(name);
      require(place != places_.end(), ExitCode::kBadData, records_.input().name(), ":", line(), ": has a field '", name,
              "', which the first object has not");
      cells[place->second] = cell_of(value);
      values_[place->second] = std::move(value);
    }
    return true;
  }
  int64_t line() const override { return records_.number(); }
  JsonValue value(const std::vector<std::string>&, size_t column) const override { return values_[column]; }
  bool is_number(size_t column) const override { return is_json_number(values_[column]); }
  int64_t bytes_read() const override { return records_.input().taken(); }
  int64_t size() const override { return records_.input().size(); }
  Hash128 hash() const override { return records_.input().hash(); }

 private:
  bool read() {
    std::string_view record;
    if (!records_.next(record)) return false;
    std::string decoded;
    if (encoding_ != TextEncoding::kUtf8 && first_invalid(record, encoding_) < 0)
      record = decoded = in_utf8(record, encoding_);
    auto object = records_.too_long() ? std::nullopt : parse_json_record(record);
    require(object.has_value(), ExitCode::kBadData, records_.input().name(), ":", line(), ": is no JSON object",
            why_not_json(record));
    object_ = std::move(*object);
    return true;
  }

  RecordReader records_;
  TextEncoding encoding_;
  JsonObject object_;
  std::vector<JsonValue> values_;
  std::unordered_map<std::string, size_t> places_;
  bool first_ = false;  // the first object was read, but not yet given
};

class LineTable final : public TableReader {
 public:
  explicit LineTable(const TableFile& file) : lines_(file.path, file.name), encoding_(file.encoding) {
    names_ = {"text"};
  }
  bool next(std::vector<std::string>& cells) override {
    std::string_view line;
    if (!lines_.next(line)) return false;
    require(!lines_.too_long(), ExitCode::kBadData, lines_.place(), ": is longer than ", LineReader::kLongestLine >> 20,
            " MiB");
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    if (lines_.number() == 1 && line.starts_with(kByteOrderMark)) line.remove_prefix(kByteOrderMark.size());
    const int64_t bad = first_invalid(line, encoding_);
    require(bad < 0, ExitCode::kBadData, lines_.place(), ": byte ", bad, " is no character in the file's encoding; ",
            "--encoding names another");
    cells.assign(1, encoding_ == TextEncoding::kUtf8 ? std::string(line) : in_utf8(line, encoding_));
    return true;
  }
  int64_t line() const override { return lines_.number(); }
  JsonValue value(const std::vector<std::string>& cells, size_t column) const override { return cells[column]; }
  int64_t bytes_read() const override { return lines_.input().taken(); }
  int64_t size() const override { return lines_.input().size(); }
  Hash128 hash() const override { return lines_.input().hash(); }

 private:
  LineReader lines_;
  TextEncoding encoding_;
};

bool named_as(const TableFile& file, std::initializer_list<const char*> ends) {
  for (const char* end : ends)
    for (const char* packed : {"", ".gz", ".zst"})
      if (file.path.ends_with(std::string(end) + packed)) return true;
  return false;
}

bool is_csv_name(const TableFile& file) { return named_as(file, {".csv", ".tsv"}); }

bool holds_json(const TableFile& file) {
  if (is_csv_name(file)) return false;
  if (named_as(file, {".jsonl", ".ndjson", ".json"})) return true;
  std::string head(4096, '\0');
  InputStream input(file.path, file.name);
  head.resize(input.read(head.data(), head.size()));
  const size_t at = head.find_first_not_of("\xEF\xBB\xBF \t\r\n");
  if (at == head.npos) return false;
  return head[at] == '{' || (head[at] == '[' && head.find('{', at) != head.npos);
}

}  // namespace

TableReader::Position TableReader::place() const {
  check(false, "a table that is read from its beginning only");
  return {};
}
void TableReader::skip_to(const Position&) { check(false, "a table that is read from its beginning only"); }

std::unique_ptr<TableReader> open_csv(const TableFile& file) { return std::make_unique<CsvTable>(file); }

std::unique_ptr<TableReader> open_table(const TableFile& file) {
  if (holds_json(file)) return std::make_unique<JsonTable>(file);
  if (file.lines && !is_csv_name(file)) return std::make_unique<LineTable>(file);
  return std::make_unique<CsvTable>(file);
}

}  // namespace lockstep
