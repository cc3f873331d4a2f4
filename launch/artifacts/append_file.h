// A file that only grows, by whole records: a record that does not fit on the disk is dropped and counted.
// Owned by a writer of metrics or events; move-only by being neither.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/plain_file.h"

namespace lockstep {

class AppendFile {
 public:
  // Opens at the end of what is there; a link in its place is refused. Throws ExitCode::kOutputLocked or kStorage.
  explicit AppendFile(std::string path);
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile();

  // Appends all of `record`, or nothing: false where it was dropped. Warns once for each run of drops. Throws what
  // check_there throws.
  bool append(std::string_view record);

  // Throws ExitCode::kOutputLocked where the path no longer leads to this file.
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
