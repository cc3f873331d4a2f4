// Temporary files and folders under names that nobody can guess. Each is locked as long as its process lives: one that
// a kill left is told by that from one in use, and the next of the same prefix removes it. Plain functions.
#pragma once

#include <string>

#include "core/base/plain_file.h"

namespace lockstep {

struct Temporary {
  std::string path;  // PREFIX and random digits; who made it removes or renames it
  Descriptor lock;   // empty: it could not be made, and errno says why
};

// First removes what this user's processes that have ended left of the prefix in its folder, which a line of the log
// says. Where the file system has no locks, nothing is locked and nothing removed.
Temporary make_temporary_file(const std::string& prefix);
Temporary make_temporary_folder(const std::string& prefix, unsigned mode);

// The first of that alone.
void remove_left_files(const std::string& prefix);

// Removes a folder with all that is in it; repeated, since other threads may still write into it.
void remove_tree(const std::string& path);

}  // namespace lockstep
