// The bytes of a configuration: read, and checked before any parser sees them.
// Plain functions.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// At most ConfigTree::kMaxBytes of a regular file. Throws ExitCode::kMissingInput where there is none, kConfig where it
// is larger, before reading it.
std::string read_config_file(const std::string& path);

// Refuses (ExitCode::kConfig, "name:line: ...") what must not reach yaml-cpp: too many bytes, other encodings, control
// characters (it takes 0x04 for the end of the text), and so many brackets that its token queue would grow to hundreds
// of megabytes. `has_lines`: of a file; an override is one line.
void check_config_text(std::string_view text, const std::string& name, bool has_lines);

bool is_utf8(std::string_view text);

}  // namespace lockstep
