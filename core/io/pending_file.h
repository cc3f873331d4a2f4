// PendingFile: a file that is written under a temporary name, flushed to disk, then renamed; an existing file stays
// until then. Owns the temporary file: removes it unless commit() was reached. One that a kill left, the next for the
// same final name removes (core/base/temporary.h).
#pragma once

#include <string>
#include <vector>

#include "core/base/plain_file.h"

namespace lockstep {

// Throw ExitCode::kStorage.
void sync_file(const std::string& path);
void sync_folder_of(const std::string& path);

class PendingFile {
 public:
  // Creates the temporary file, empty, under a random name. Throws kOutputLocked if the final name exists (unless
  // `replace`), or its directory does not.
  PendingFile(std::string final_path, bool replace);
  // The same under a name that the caller chooses, on the same file system, where nothing is.
  PendingFile(std::string final_path, bool replace, std::string temporary);
  // Throws as the constructor would for the final name.
  static void check_place(const std::string& final_path, bool replace);
  PendingFile(const PendingFile&) = delete;
  PendingFile& operator=(const PendingFile&) = delete;
  ~PendingFile();
  // Write into this file, close it, then commit().
  const std::string& temporary() const { return temporary_; }
  void commit() { commit_all({this}); }
  // All of them or none: where one cannot get its name, those before it lose theirs again, and what they replaced is
  // back.
  static void commit_all(const std::vector<PendingFile*>& files);

 private:
  std::string kept() const { return temporary_ + ".replaced"; }
  bool keep_replaced() const;
  void place();
  void take_back(bool has_kept);

  std::string final_path_, temporary_;
  Descriptor lock_;
  bool replace_, committed_ = false;
};

// A new folder, under a temporary name until commit(); removed without. Used by one thread.
class PendingFolder {
 public:
  // Throws ExitCode::kOutputLocked where there is something at `path` already, or the folder cannot be made.
  explicit PendingFolder(const std::string& path);
  PendingFolder(const PendingFolder&) = delete;
  PendingFolder& operator=(const PendingFolder&) = delete;
  ~PendingFolder();
  std::string operator/(const std::string& name) const;  // the path of a file in it
  void write(const std::string& name, const std::string& text) const;
  void commit();

 private:
  std::string path_, temporary_;
  Descriptor lock_;
  bool committed_ = false;
};

}  // namespace lockstep
