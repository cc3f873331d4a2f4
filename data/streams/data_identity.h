// What tells whether the files of a configuration are still the same data: their identities. Plain functions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "data/samples/data_options.h"

namespace lockstep {

// data.path, data.validation_path and data.sources, without those that are not set: files, or patterns of several.
std::vector<std::string> named_files(const DataOptions& options);

// The files that these name, each with its identity, 32 hex digits; patterns, too, with one of all their files. Only
// headers are read. Left out are files that are not there or cannot be opened, of which a run says what is wrong, and
// files of other programs whose hashes are not kept beside them yet (data/samples/foreign_file.h). Empty for generated
// data.
std::map<std::string, std::string> file_identities(const DataOptions& options);

}  // namespace lockstep
