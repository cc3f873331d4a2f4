// AppendFile: a file to which whole records are appended; a record that does not fit on the disk is dropped and
// counted. Owned by a writer of metrics or events. Neither copyable nor movable.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/plain_file.h"

namespace lockstep {

class AppendFile {
 public:
  // Opens the file, created if absent, for appending. Throws ExitCode::kOutputLocked (also if the path is a symbolic
  // link) or kStorage.
  explicit AppendFile(std::string path);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  // Appends all of `record`, or nothing; returns false if it was dropped. Warns once for consecutive drops. Throws the
  // error of check_there().
  bool append(std::string_view record);

  // Throws ExitCode::kOutputLocked if the path no longer refers to this file.
  void check_there() const;

  int64_t dropped() const { return dropped_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  Descriptor file_;
  int64_t size_ = 0;
  int64_t dropped_ = 0;
  bool failing_ = false;
};

}  // namespace lockstep
