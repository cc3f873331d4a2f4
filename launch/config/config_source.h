// Reads the bytes of a configuration and checks them before they are parsed.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// The content of a regular file of at most ConfigTree::kMaxBytes. Throws ExitCode::kMissingInput if there is no such
// file, kConfig if it is larger, before reading it.
std::string read_config_file(const std::string& path);

// Throws ExitCode::kConfig ("name:line: ...") for input that yaml-cpp must not get: too many bytes, other encodings
// than UTF-8, control characters (yaml-cpp takes 0x04 for the end of the text), and so many brackets that its token
// queue would grow to hundreds of megabytes. `has_lines`: true for a file, false for an override, which is one line.
void check_config_text(std::string_view text, const std::string& name, bool has_lines);

bool is_utf8(std::string_view text);

}  // namespace lockstep
