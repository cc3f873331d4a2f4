#include "core/base/temporary.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <vector>

#include "core/base/error.h"
#include "core/base/log.h"

namespace lockstep {
namespace fs = std::filesystem;
namespace {

constexpr size_t kDigits = 16;

enum class Kind { kFile, kFolder };

Descriptor open_kind(const std::string& path, Kind kind) {
  const int flags = kind == Kind::kFolder ? O_RDONLY | O_DIRECTORY : O_RDWR | O_NONBLOCK;
  return Descriptor(::open(path.c_str(), flags | O_NOFOLLOW | O_CLOEXEC));
}

// The lock of a file is not that of flock, which HDF5 takes on what it writes.
bool lock(const Descriptor& file, Kind kind) {
  if (kind == Kind::kFolder) return ::flock(file.number(), LOCK_EX | LOCK_NB) == 0;
  struct flock all {};
  all.l_type = F_WRLCK;
  return ::fcntl(file.number(), F_OFD_SETLK, &all) == 0;
}

bool is_kind_of_ours(const struct stat& about, Kind kind) {
  return about.st_uid == ::geteuid() &&
         (kind == Kind::kFolder ? S_ISDIR(about.st_mode) : S_ISREG(about.st_mode) && about.st_nlink == 1);
}

void remove_left_behind(const std::string& prefix, Kind kind) {
  const fs::path path(prefix), folder = path.has_parent_path() ? path.parent_path() : ".";
  const std::string begin = path.filename().string();
  std::vector<fs::path> left;
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name.size() == begin.size() + kDigits && name.starts_with(begin) &&
        name.find_first_not_of("0123456789abcdef", begin.size()) == name.npos)
      left.push_back(at->path());
  }
  for (const fs::path& one : left) {
    const Descriptor file = open_kind(one.string(), kind);
    struct stat about {};
    if (!file || ::fstat(file.number(), &about) != 0 || !is_kind_of_ours(about, kind) || !lock(file, kind)) continue;
    if (kind == Kind::kFolder) remove_tree(one.string());
    else ::unlink(one.c_str());
    log_info(str("removed ", one.string(), ", left by a process that was killed"));
  }
}

Temporary make(const std::string& prefix, Kind kind, unsigned mode) {
  remove_left_behind(prefix, kind);
  for (;;) {
    Temporary out{prefix + random_digits(), Descriptor()};
    const bool folder = kind == Kind::kFolder;
    if (!folder) out.lock = create_new(out.path);
    const bool made = folder ? ::mkdir(out.path.c_str(), mode) == 0 : bool{out.lock};
    if (!made && errno == EEXIST) continue;
    if (!made) return out;
    if (folder) out.lock = open_kind(out.path, kind);
    if (!out.lock && errno == ENOENT) continue;
    if (!out.lock) return out;
    // Until it is locked, another process may take it for left behind, and remove it.
    if (!lock(out.lock, kind) && (errno == EWOULDBLOCK || errno == EACCES)) continue;
    struct stat open {
    }, named{};
    if (::fstat(out.lock.number(), &open) == 0 && ::lstat(out.path.c_str(), &named) == 0 &&
        open.st_ino == named.st_ino && open.st_dev == named.st_dev)
      return out;
  }
}

}  // namespace

Temporary make_temporary_file(const std::string& prefix) { return make(prefix, Kind::kFile, 0); }
void remove_left_files(const std::string& prefix) { remove_left_behind(prefix, Kind::kFile); }
Temporary make_temporary_folder(const std::string& prefix, unsigned mode) { return make(prefix, Kind::kFolder, mode); }

void remove_tree(const std::string& path) {
  std::error_code error;
  for (int attempt = 0; attempt < 100 && fs::exists(fs::symlink_status(path, error)); ++attempt)
    fs::remove_all(path, error);
}

}  // namespace lockstep
