#include "launch/arguments/table_options.h"

#include <algorithm>

#include "core/base/error.h"

namespace lockstep {

TextEncoding encoding_of(const Arguments& a) {
  const std::string& name = a.text("encoding");
  if (name.empty() || name == "utf-8") return TextEncoding::kUtf8;
  require(name == "latin-1" || name == "windows-1252", ExitCode::kUsage, "--encoding ", name,
          ": must be utf-8, latin-1 or windows-1252");
  return name == "latin-1" ? TextEncoding::kLatin1 : TextEncoding::kWindows1252;
}

char delimiter_of(const Arguments& a) {
  const std::string& text = a.text("delimiter");
  if (text == "tab" || text == "\\t") return '\t';
  require(text.size() <= 1 && text.find_first_of("\"\n\r") == text.npos, ExitCode::kUsage, "--delimiter ", text,
          ": must be one character, or tab");
  return text.empty() ? '\0' : text[0];
}

std::optional<char> thousands_of(const Arguments& a) {
  const std::string& text = a.text("thousands");
  if (text.empty()) return std::nullopt;
  if (text == "none") return '\0';
  if (text == "space") return ' ';
  require(text.size() == 1 && std::string_view(",.'_ ").find(text) != std::string_view::npos, ExitCode::kUsage,
          "--thousands ", text, ": must be one of , . ' _ and space, or none");
  return text[0];
}

Option thousands_option(const std::string& formats) {
  return {"thousands",
          formats + "what stands between the thousands of numbers: , . ' _ or space, or none, which is the default",
          "CHAR", ""};
}

std::vector<Option> cell_options() {
  return {{"decimal-comma", "csv, parquet: numbers in texts have a comma in the place of the point"},
          thousands_option("csv, parquet: "),
          {"strip",
           "csv, parquet: texts before or behind numbers that are no part of these, such as $,%,kg; () stands for "
           "the parentheses of a negative number",
           "TEXT,...", ""},
          {"date",
           "csv, parquet: columns of dates or times, which become days since 1970-01-01, of times alone parts of a day",
           "COLUMN,...", ""},
          {"date-order", "csv, parquet: the order of dates in figures: ymd (default), dmy or mdy", "ORDER", ""}};
}

namespace {

// Of --date-order.
DateOrder date_order_of(const Arguments& a) {
  const std::string& name = a.text("date-order");
  require(name.empty() || !a.text("date").empty(), ExitCode::kUsage, "--date-order is for --date: name its columns");
  const auto at = std::find(std::begin(kDateOrders), std::end(kDateOrders), name.empty() ? "ymd" : name);
  require(at != std::end(kDateOrders), ExitCode::kUsage, "--date-order ", name, ": must be ymd, dmy or mdy");
  return static_cast<DateOrder>(at - std::begin(kDateOrders));
}

std::vector<std::string> names_in(const std::string& list) {
  std::vector<std::string> out;
  for (size_t at = 0, end; at < list.size(); at = end + 1) {
    end = std::min(list.find(',', at), list.size());
    out.push_back(list.substr(at, end - at));
  }
  return out;
}

// Of --unknown.
bool unknown_is_missing(const Arguments& a) {
  const std::string& how = a.text("unknown");
  require(how.empty() || how == "missing" || how == "error", ExitCode::kUsage, "--unknown ", how,
          ": must be missing or error");
  require(how.empty() || !a.text("like").empty(), ExitCode::kUsage,
          "--unknown is for categories that the data of --like has not: name it");
  return how == "missing";
}

}  // namespace

void refuse_text_options(const Arguments& a, const std::string& format) {
  for (const char* other : {"vocabulary", "tokenizer", "separator"})
    require(a.text(other).empty(), ExitCode::kUsage, "data import ", format, ": --", other, " needs --text");
  require(!a.has("whole-texts"), ExitCode::kUsage, "data import ", format, ": --whole-texts needs --text");
}

TableOptions table_columns(const Arguments& a, const std::string& format) {
  refuse_text_options(a, format);
  require(a.text("label").empty() != a.text("target").empty(), ExitCode::kUsage, "data import ", format,
          ": give exactly one of --label COLUMN and --target COLUMN");
  bool chooses = false;
  for (const char* other : {"categories", "leave-out", "strip", "date", "missing"}) chooses |= !a.text(other).empty();
  require(a.text("like").empty() || !chooses, ExitCode::kUsage, "data import ", format,
          ": --categories, --leave-out, --strip, --date and --missing are what the file of --like was imported with: ",
          "leave them out");
  return {a.text("label"),
          a.text("target"),
          names_in(a.text("categories")),
          names_in(a.text("leave-out")),
          a.has("fill-missing"),
          names_in(a.text("missing")),
          a.has("many-labels"),
          a.text("weight"),
          encoding_of(a),
          delimiter_of(a),
          a.has("decimal-comma"),
          thousands_of(a),
          names_in(a.text("strip")),
          names_in(a.text("date")),
          date_order_of(a),
          unknown_is_missing(a)};
}

}  // namespace lockstep
