#include "launch/records/run_dir.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <filesystem>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/plain_file.h"
#include "core/base/temporary.h"
#include "core/base/trace.h"
#include "core/io/files.h"
#include "core/io/json.h"
#include "launch/world/memory_report.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kConfigHeader = "# The resolved configuration of this run, written by lockstep.\n";

std::string time_text() {
  std::time_t now = std::time(nullptr);
  std::tm parts = {};
  ::gmtime_r(&now, &parts);
  std::array<char, 32> text = {};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text.data();
}

struct Owner {
  int64_t pid = 0;
  std::string host = "?", since = "?";
  std::string text() const {
    return pid > 0 ? str("process ", pid, " on ", host, " since ", since) : std::string("another process");
  }
};

Owner read_owner(const std::string& lock) {
  Owner owner;
  auto object = parse_json_object(read_head(lock, 4096));
  if (!object) return owner;
  owner.pid = integer_of(*object, "pid");
  if (const std::string host = text_of(*object, "host"); !host.empty()) owner.host = host;
  if (const std::string since = text_of(*object, "since"); !since.empty()) owner.since = since;
  return owner;
}

void require_named(const std::string& dir) {
  require(!dir.empty(), ExitCode::kOutputLocked, "run.dir is empty: name a directory for the results");
}

// Returns whether the directory holds a run.
bool require_new_or_resumed(const std::string& dir, bool resume) {
  const bool holds = RunDir::holds_a_run(dir);
  require(resume || !holds, ExitCode::kOutputLocked, "run.dir ", dir,
          " already holds a run: add --resume to continue it, or choose another run.dir");
  return holds;
}

void require_own_config(const std::string& path) {
  const std::string head = read_head(path, kConfigHeader.size());
  require(head.empty() || head == kConfigHeader, ExitCode::kOutputLocked, path,
          " was not written by lockstep and would be overwritten: choose another run.dir");
}

// A folder of the run may be a link, as to a larger disk, where the owner of the run directory made it. One of somebody
// else, who may write there, leads to a place that the run's user does not mean.
void require_own_folders(const RunPaths& paths) {
  struct stat own = {}, link = {};
  if (::stat(paths.dir.c_str(), &own) != 0) return;
  for (const std::string& place : {paths.checkpoints(), paths.tensorboard(), paths.profile()}) {
    if (::lstat(place.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) continue;
    require(link.st_uid == own.st_uid, ExitCode::kOutputLocked, place, " is a link that another user (",
            static_cast<int64_t>(link.st_uid), ") than the owner of ", paths.dir,
            " made: remove it, or choose another run.dir");
  }
}

[[noreturn]] void fail_locked(const std::string& dir, const std::string& owner) {
  throw Error(ExitCode::kOutputLocked,
              str("run.dir ", dir, " is in use by ", owner, ": wait for it, stop it, or choose another run.dir"));
}

}  // namespace

bool RunDir::holds_a_run(const std::string& dir) {
  RunPaths paths{dir};
  std::error_code error;
  auto size = fs::file_size(paths.metrics(), error);
  if (!error && size > 0) return true;
  fs::directory_iterator checkpoints(paths.checkpoints(), error);
  return !error && checkpoints != fs::directory_iterator();
}

RunDir::RunDir(const std::string& dir, bool resume) : paths_{dir} {
  require_named(dir);
  make_folder(dir);
  take_lock();
  try {
    resumed_ = require_new_or_resumed(dir, resume);
    require_own_folders(paths_);
    make_folder(paths_.checkpoints());
    make_folder(paths_.tensorboard());
    // The lock file may have existed already, so create and remove a probe file in each directory that will get files.
    for (const auto& place : {paths_.dir, paths_.checkpoints(), paths_.tensorboard()}) {
      const Temporary probe = make_temporary_file(place + "/.probe-");
      if (!probe.lock) fail_write(place, errno);
      ::unlink(probe.path.c_str());
    }
    // Of an earlier attempt; a launcher of this one writes the latter again within a second.
    for (const auto& left : {paths_.failure(), paths_.ranks()}) ::unlink(left.c_str());
    for (const auto& path : {paths_.config(), paths_.algorithms(), paths_.metrics(), paths_.histograms(),
                             paths_.memory_profile(), paths_.failure()})
      remove_left_files(path + ".tmp-");
  } catch (...) {
    release_lock();
    throw;
  }
}

RunDir::~RunDir() { release_lock(); }

std::string RunDir::holder(const std::string& dir) {
  const std::string path = RunPaths{dir}.lock();
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file || ::flock(file.number(), LOCK_SH | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  return read_owner(path).text();
}

void RunDir::require_usable(const std::string& dir, bool resume) {
  require_named(dir);
  const std::string place = nearest_folder(dir);
  std::error_code error;
  if (!fs::is_directory(place, error)) fail_write(place, ENOTDIR);
  if (::faccessat(AT_FDCWD, place.c_str(), W_OK | X_OK, AT_EACCESS) != 0) fail_write(place, errno);
  if (!fs::exists(dir, error)) return;
  if (const std::string owner = holder(dir); !owner.empty()) fail_locked(dir, owner);
  require_new_or_resumed(dir, resume);
  require_own_folders(RunPaths{dir});
  require_own_config(RunPaths{dir}.config());
}

void RunDir::release_lock() {
  // The file is not removed: otherwise a third process could lock a new file while a second one waits for the old one.
  (void)!::ftruncate(lock_fd_, 0);
  ::close(lock_fd_);
}

// The kernel's lock decides: it ends with its process, however that ends, so the text that a dead process left in the
// file does not matter. The text decides only if the file system does not support locks.
void RunDir::take_lock() {
  std::string path = paths_.lock();
  lock_fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (lock_fd_ < 0) fail_write(paths_.dir, errno);
  bool locked = ::flock(lock_fd_, LOCK_EX | LOCK_NB) == 0;
  bool taken = !locked && errno == EWOULDBLOCK;
  Owner owner = read_owner(path);
  if (!locked && !taken && owner.pid > 0) {
    bool here = owner.host == host_name();
    taken = !here || owner.pid == ::getpid() || ::kill(static_cast<pid_t>(owner.pid), 0) == 0 || errno == EPERM;
  }
  if (taken) {
    ::close(lock_fd_);
    fail_locked(paths_.dir, owner.text());
  }
  if (owner.pid > 0)
    log_info(str("run.dir ", paths_.dir, ": the lock of ", owner.text(), " is stale and was taken over"));
  std::string text =
      json_line({{"pid", static_cast<int64_t>(::getpid())}, {"host", host_name()}, {"since", time_text()}});
  text += "\n";
  bool written = ::ftruncate(lock_fd_, 0) == 0;
  for (size_t at = 0; written && at < text.size();) {
    const ssize_t n = ::pwrite(lock_fd_, text.data() + at, text.size() - at, static_cast<off_t>(at));
    written = n > 0 || (n < 0 && errno == EINTR);
    if (n > 0) at += static_cast<size_t>(n);
  }
  if (!written) {
    int error = errno;
    ::close(lock_fd_);
    fail_write(path, error);
  }
}

void RunDir::check_held() const {
  struct stat named = {}, mine = {};
  const std::string path = paths_.lock();
  const bool there = ::stat(path.c_str(), &named) == 0;
  const bool same =
      there && ::fstat(lock_fd_, &mine) == 0 && named.st_ino == mine.st_ino && named.st_dev == mine.st_dev;
  if (same) return;
  std::error_code ignored;
  throw Error(ExitCode::kOutputLocked,
              fs::is_directory(paths_.dir, ignored)
                  ? str(path, " was ", there ? "replaced" : "removed", " during the run: ",
                        "another process could use run.dir now, so this one ends; continue with --resume")
                  : str("run.dir ", paths_.dir, " was removed or moved during the run"));
}

void RunDir::write_config(std::string_view yaml) const {
  trace_mark();
  std::string path = paths_.config();
  require_own_config(path);
  replace_file(path, str(kConfigHeader, yaml));
}

void RunDir::write_algorithms(std::string_view text) const { replace_file(paths_.algorithms(), text); }

void write_failure(const std::string& dir, const Failure& failure) noexcept {
  try {
    replace_file(RunPaths{dir}.failure(), json_line({{"exit_code", static_cast<int64_t>(failure.code)},
                                                     {"message", failure.message},
                                                     {"rank", static_cast<int64_t>(failure.rank)},
                                                     {"step", failure.step},
                                                     {"equal_step", failure.equal_step},
                                                     {"miscomputes", failure.miscomputes},
                                                     {"host", host_name()},
                                                     {"pid", static_cast<int64_t>(::getpid())},
                                                     {"time", time_text()}}) +
                                              "\n");
  } catch (...) {
    // The error itself is reported on the terminal; this file is only an addition.
  }
}

std::string local_file_system(const std::string& dir) {
  struct statfs st = {};
  if (::statfs(nearest_folder(dir).c_str(), &st) != 0) return {};
  for (const auto& [magic, name] :
       {std::pair(0xEF53L, "ext4"), std::pair(0x58465342L, "xfs"), std::pair(0x9123683EL, "btrfs"),
        std::pair(0x01021994L, "tmpfs"), std::pair(0x2FC12FC1L, "zfs"), std::pair(0x794C7630L, "overlay")})
    if (static_cast<long>(st.f_type) == magic) return name;
  return {};
}

std::string nearest_folder(const std::string& dir) {
  std::error_code error;
  if (fs::exists(dir, error)) return dir;
  fs::path place = fs::absolute(dir, error);
  while (!fs::exists(place, error) && place.has_relative_path()) place = place.parent_path();
  return place.string();
}

void require_free_space(const std::string& dir, int64_t bytes, std::string_view what) {
  struct statvfs st = {};
  if (::statvfs(dir.c_str(), &st) != 0) fail_write(dir, errno);
  auto free = static_cast<double>(st.f_bavail) * static_cast<double>(st.f_frsize);
  require(free >= static_cast<double>(bytes), ExitCode::kStorage, dir, " has ", bytes_text(static_cast<int64_t>(free)),
          " free, ", what, " ", bytes_text(bytes), ": free space or choose another run.dir");
}

}  // namespace lockstep
