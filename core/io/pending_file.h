// A file on its way: written beside its final name, flushed to disk, then renamed; the earlier file stays until then.
// Owns the temporary file: removes it unless commit() was reached.
#pragma once

#include <string>

namespace lockstep {

// Throw ExitCode::kStorage.
void sync_file(const std::string& path);
void sync_folder_of(const std::string& path);

class PendingFile {
 public:
  // Makes the temporary file, empty, under a name that nobody can have put something under before. Throws
  // kOutputLocked where the final name is there already (unless `replace`), or its folder is not.
  PendingFile(std::string final_path, bool replace);
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile();
  // Write into this file, close it, then commit().
  const std::string& temporary() const { return temporary_; }
  void commit();

 private:
  std::string final_path_, temporary_;
  bool replace_, committed_ = false;
};

}  // namespace lockstep
