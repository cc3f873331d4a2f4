#include "core/io/pending_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/log.h"
#include "core/base/system_call.h"
#include "core/base/temporary.h"

namespace lockstep {
namespace fs = std::filesystem;

namespace {

void sync_path(const std::string& path, int flags) {
  int descriptor = ::open(path.c_str(), flags | O_CLOEXEC);
  require_done(descriptor >= 0, ExitCode::kStorage, path, ": cannot be opened to flush it to disk");
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
          ": is already there; remove it, choose another name or give --force, where the command has that");
}

[[noreturn]] void fail_to_make(const std::string& path, int error) {
  throw Error(is_storage_error(error) ? ExitCode::kStorage : ExitCode::kOutputLocked,
              str(path, ": nothing can be written beside it: ", std::strerror(error)));
}

}  // namespace

void sync_file(const std::string& path) { sync_path(path, O_RDONLY); }
void sync_folder_of(const std::string& path) { sync_path(folder_of(path), O_RDONLY | O_DIRECTORY); }

PendingFile::PendingFile(std::string final_path, bool replace) : final_path_(std::move(final_path)), replace_(replace) {
  check_place(final_path_, replace_);
  Temporary made = make_temporary_file(final_path_ + ".part-");
  if (!made.lock) fail_to_make(final_path_, errno);
  temporary_ = std::move(made.path);
  lock_ = std::move(made.lock);
}

PendingFile::PendingFile(std::string final_path, bool replace, std::string temporary)
    : final_path_(std::move(final_path)), temporary_(std::move(temporary)), replace_(replace) {
  check_place(final_path_, replace_);
  if (!create_new(temporary_)) fail_to_make(final_path_, errno);
}

void PendingFile::check_place(const std::string& path, bool replace) {
  require(!path.empty(), ExitCode::kUsage, "the output needs a name");
  std::error_code ignored;
  require(fs::is_directory(folder_of(path), ignored), ExitCode::kOutputLocked, path, ": its folder ", folder_of(path),
          " is not there; make it first");
  require(!fs::is_directory(path, ignored), ExitCode::kOutputLocked, path, ": is a folder; give a file name");
  const fs::file_status there = fs::symlink_status(path, ignored);
  require(!fs::exists(there) || fs::is_regular_file(there) || fs::is_symlink(there), ExitCode::kOutputLocked, path,
          ": is a device, pipe or socket, and this output is a file; give a file name");
  if (!replace) refuse_existing(path);
}

PendingFile::~PendingFile() {
  if (!committed_) ::unlink(temporary_.c_str());
}

void PendingFile::commit_all(const std::vector<PendingFile*>& files) {
  for (const PendingFile* f : files) {
    check(!f->committed_, "commit() a second time: ", f->final_path_);
    sync_file(f->temporary_);
  }
  for (const PendingFile* f : files)
    if (!f->replace_) refuse_existing(f->final_path_);  // it may have come meanwhile
  std::vector<bool> has_kept;
  size_t placed = 0;
  try {
    for (; placed < files.size(); ++placed) {
      has_kept.push_back(files.size() > 1 && files[placed]->keep_replaced());
      files[placed]->place();
    }
  } catch (...) {
    for (size_t i = placed; i-- > 0;) files[i]->take_back(has_kept[i]);
    if (has_kept.size() > placed) ::unlink(files[placed]->kept().c_str());
    throw;
  }
  for (PendingFile* f : files) {
    ::unlink(f->kept().c_str());
    f->committed_ = true;
    f->lock_ = Descriptor();
  }
  for (const PendingFile* f : files) sync_folder_of(f->final_path_);
}

// A second name for what is replaced; false where there is nothing, or the file system has no such names.
bool PendingFile::keep_replaced() const { return replace_ && ::link(final_path_.c_str(), kept().c_str()) == 0; }

void PendingFile::place() {
  const auto cannot = [&](int error) {
    throw Error(ExitCode::kStorage, str(final_path_, ": the finished file could not be renamed from ", temporary_, ": ",
                                        std::strerror(error)));
  };
  const char *from = temporary_.c_str(), *to = final_path_.c_str();
  if (replace_) {
    if (::rename(from, to) != 0) cannot(errno);
    return;
  }
  if (::renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return;
  if (errno != EEXIST && errno != EINVAL && errno != ENOSYS) cannot(errno);
  refuse_existing(final_path_);
  // Some file systems do not know the flag. A second name never replaces a file either.
  if (::link(from, to) == 0) return void(::unlink(from));
  refuse_existing(final_path_);
  if (::rename(from, to) != 0) cannot(errno);
}

void PendingFile::take_back(bool has_kept) {
  const bool back = has_kept ? ::rename(kept().c_str(), final_path_.c_str()) == 0
                             : ::rename(final_path_.c_str(), temporary_.c_str()) == 0;
  if (!back) log_warning(str(final_path_, ": is complete and stays, though the others are not made"));
}

PendingFolder::PendingFolder(const std::string& path) : path_(path) {
  std::error_code error;
  require(!fs::exists(fs::symlink_status(path_, error)), ExitCode::kOutputLocked, path_,
          ": is already there; remove it or choose another name");
  PendingFile::check_place(path_, false);  // is the folder around it there?
  Temporary made = make_temporary_folder(path_ + ".part-", 0777);
  require_done(bool{made.lock}, ExitCode::kOutputLocked, path_, ": its folder cannot be made");
  temporary_ = std::move(made.path);
  lock_ = std::move(made.lock);
}

PendingFolder::~PendingFolder() {
  std::error_code ignored;
  if (!committed_) fs::remove_all(temporary_, ignored);
}

std::string PendingFolder::operator/(const std::string& name) const { return str(temporary_, "/", name); }

void PendingFolder::write(const std::string& name, const std::string& text) const {
  std::error_code error;
  fs::create_directories(fs::path(*this / name).parent_path(), error);  // what cannot be made cannot be written
  PendingFile file(*this / name, false);
  std::ofstream out(file.temporary(), std::ios::binary);
  out << text;
  out.close();
  require(out.good(), ExitCode::kStorage, file.temporary(), ": cannot be written");
  file.commit();
}

void PendingFolder::commit() {
  std::error_code error;
  fs::rename(temporary_, path_, error);  // a folder that came meanwhile, unless it is empty, stays
  require(!error, ExitCode::kStorage, path_, ": cannot be put in place: ", error.message());
  committed_ = true;
  sync_folder_of(path_);
}

}  // namespace lockstep
