#include "launch/commands/table_options.h"

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
          ": is one character, or tab");
  return text.empty() ? '\0' : text[0];
}

namespace {

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
          ": one of --label COLUMN and --target COLUMN is needed");
  const bool chooses = !a.text("categories").empty() || !a.text("leave-out").empty() || !a.text("missing").empty();
  require(a.text("like").empty() || !chooses, ExitCode::kUsage, "data import ", format,
          ": --categories, --leave-out and --missing are what the file of --like was imported with: leave them out");
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
          unknown_is_missing(a)};
}

}  // namespace lockstep
