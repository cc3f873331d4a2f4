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
    : PendingFile(final_path, replace, temporary_name(final_path, "part")) {}

PendingFile::PendingFile(std::string final_path, bool replace, std::string temporary)
    : final_path_(std::move(final_path)), temporary_(std::move(temporary)), replace_(replace) {
  check_place(final_path_, replace_);
  const bool made = bool{create_new(temporary_)};
  require(made, errno == ENOSPC || errno == EDQUOT || errno == EIO ? ExitCode::kStorage : ExitCode::kOutputLocked,
          final_path_, ": nothing can be written beside it: ", std::strerror(errno));
}

void PendingFile::check_place(const std::string& path, bool replace) {
  require(!path.empty(), ExitCode::kUsage, "the output needs a name");
  std::error_code ignored;
  require(fs::is_directory(folder_of(path), ignored), ExitCode::kOutputLocked, path, ": its folder ", folder_of(path),
          " is not there; make it first");
  require(!fs::is_directory(path, ignored), ExitCode::kOutputLocked, path, ": is a folder; give a file name");
  if (!replace) refuse_existing(path);
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
