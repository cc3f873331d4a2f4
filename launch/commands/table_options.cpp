#include "launch/commands/table_options.h"

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

}  // namespace lockstep
