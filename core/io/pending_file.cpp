#include "core/io/pending_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "core/base/error.h"
#include "core/base/plain_file.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {

void sync_path(const std::string& path, int flags) {
  int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  require(descriptor >= 0, ExitCode::kStorage, path, ": cannot be opened to flush it to disk: ", std::strerror(errno));
  int failed = ::fsync(descriptor) != 0 ? errno : 0;
  ::close(descriptor);
  // Some network file systems cannot flush a folder (EINVAL); there is nothing better to do there.
  require(failed == 0 || failed == EINVAL, ExitCode::kStorage, path, ": not flushed to disk: ", std::strerror(failed));
}

std::string folder_of(const std::string& path) {
  std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

void refuse_existing(const std::string& path) {
  std::error_code ignored;
  require(!fs::exists(fs::symlink_status(path, ignored)), ExitCode::kOutputLocked, path,
          ": is already there; remove it or choose another name (data import: or give --force)");
}

}  // namespace

void sync_file(const std::string& path) { sync_path(path, O_RDONLY); }
void sync_folder_of(const std::string& path) { sync_path(folder_of(path), O_RDONLY | O_DIRECTORY); }

PendingFile::PendingFile(std::string final_path, bool replace)
    : final_path_(std::move(final_path)), temporary_(temporary_name(final_path_, "part")), replace_(replace) {
  require(!final_path_.empty(), ExitCode::kUsage, "the output needs a name");
  std::error_code ignored;
  require(fs::is_directory(folder_of(final_path_), ignored), ExitCode::kOutputLocked, final_path_, ": its folder ",
          folder_of(final_path_), " is not there; make it first");
  require(!fs::is_directory(final_path_, ignored), ExitCode::kOutputLocked, final_path_,
          ": is a folder; give a file name");
  if (!replace_) refuse_existing(final_path_);
  const bool made = bool{create_new(temporary_)};
  require(made, errno == ENOSPC || errno == EDQUOT || errno == EIO ? ExitCode::kStorage : ExitCode::kOutputLocked,
          final_path_, ": nothing can be written beside it: ", std::strerror(errno));
}

PendingFile::~PendingFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void PendingFile::commit() {
  check(!committed_, "commit() a second time: ", final_path_);
  sync_file(temporary_);
  if (!replace_) refuse_existing(final_path_);  // it may have come meanwhile
  require(::rename(temporary_.c_str(), final_path_.c_str()) == 0, ExitCode::kStorage, final_path_,
          ": the finished file could not be renamed from ", temporary_, ": ", std::strerror(errno));
  committed_ = true;
  sync_folder_of(final_path_);
}

}  // namespace lockstep
