#include "core/io/append_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/log.h"
#include "core/io/files.h"

namespace lockstep {

AppendFile::AppendFile(std::string path) : path_(std::move(path)), file_(open_to_append(path_)) {
  if (!file_) fail_write(path_, errno);
  struct stat st = {};
  if (::fstat(file_.number(), &st) == 0) size_ = st.st_size;
}

AppendFile::~AppendFile() {
  if (dropped_ > 0) log_warning(str(path_, ": ", dropped_, " records were dropped because they could not be written"));
}

void AppendFile::check_there() const {
  struct stat named = {}, open = {};
  if (::fstat(file_.number(), &open) != 0) fail_write(path_, errno);
  const bool there = ::stat(path_.c_str(), &named) == 0;
  if (there && named.st_ino == open.st_ino && named.st_dev == open.st_dev) return;
  const std::filesystem::path dir = std::filesystem::path(path_).parent_path();
  std::error_code ignored;
  const bool dir_lost = !dir.empty() && !std::filesystem::is_directory(dir, ignored);
  throw Error(ExitCode::kOutputLocked,
              str(dir_lost ? dir.string() : path_, " was ", there ? "replaced by another file" : "removed or moved",
                  " during the run: further output would be lost"));
}

bool AppendFile::append(std::string_view record) {
  check_there();
  size_t written = 0;
  int error = 0;
  while (written < record.size() && !error) {
    ssize_t n = ::write(file_.number(), record.data() + written, record.size() - written);
    if (n >= 0) {
      written += static_cast<size_t>(n);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  if (!error) {
    size_ += static_cast<int64_t>(record.size());
    failing_ = false;
    return true;
  }
  // Remove the partial record, so that the next one begins at a record boundary.
  if (written > 0 && ::ftruncate(file_.number(), size_) != 0) size_ += static_cast<int64_t>(written);
  ++dropped_;
  if (!failing_) log_warning(str("cannot write ", path_, ": ", std::strerror(error), "; the run continues without it"));
  failing_ = true;
  return false;
}

}  // namespace lockstep
