#include "launch/cluster/process_view.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "core/base/error.h"

namespace lockstep {
namespace {

// The fields of /proc/N/stat after the name, which may itself contain spaces and brackets.
std::istringstream after_name(int64_t process) {
  std::ifstream file(str("/proc/", process, "/stat"));
  std::string line;
  std::getline(file, line);
  const size_t end = line.rfind(')');
  return std::istringstream(end == std::string::npos ? std::string() : line.substr(end + 1));
}

bool is_same_file(const std::string& a, const std::string& b) {
  struct stat x = {}, y = {};
  return ::stat(a.c_str(), &x) == 0 && ::stat(b.c_str(), &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

}  // namespace

char process_state(int64_t process) {
  char state = 0;
  after_name(process) >> state;
  return state;
}

double cpu_seconds(int64_t process) {
  std::istringstream fields = after_name(process);
  std::string skipped;
  for (int i = 0; i < 11; ++i) fields >> skipped;
  double user = 0, system = 0;
  fields >> user >> system;
  return (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

int64_t start_time(int64_t process) {
  std::istringstream fields = after_name(process);
  std::string skipped;
  for (int i = 0; i < 19; ++i) fields >> skipped;
  int64_t ticks = -1;
  return fields >> ticks ? ticks : -1;
}

std::string program_of(int64_t process) {
  constexpr std::string_view kDeleted = " (deleted)";
  std::error_code error;
  std::string path = std::filesystem::read_symlink(str("/proc/", process, "/exe"), error).string();
  if (path.ends_with(kDeleted)) path.resize(path.size() - kDeleted.size());
  return path;
}

bool runs_this_program(int64_t process) {
  const std::string program = program_of(process);
  return !program.empty() &&
         (is_same_file(str("/proc/", process, "/exe"), "/proc/self/exe") || program == program_of(::getpid()));
}

bool has_open(int64_t process, const std::string& path) {
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(str("/proc/", process, "/fd"), error))
    if (is_same_file(entry.path().string(), path)) return true;
  return false;
}

std::string waits_in(int64_t process, int64_t thread) {
  static const std::map<int64_t, const char*> names{
      {SYS_futex, "futex"},           {SYS_poll, "poll"},           {SYS_ppoll, "ppoll"},
      {SYS_epoll_wait, "epoll_wait"}, {SYS_read, "read"},           {SYS_pread64, "pread"},
      {SYS_write, "write"},           {SYS_pwrite64, "pwrite"},     {SYS_fsync, "fsync"},
      {SYS_fdatasync, "fdatasync"},   {SYS_nanosleep, "nanosleep"}, {SYS_clock_nanosleep, "clock_nanosleep"},
      {SYS_recvfrom, "recv"},         {SYS_sendto, "send"},         {SYS_openat, "open"},
      {SYS_flock, "flock"},           {SYS_fcntl, "fcntl"},         {SYS_wait4, "wait"}};
  std::ifstream file(str("/proc/", process, "/task/", thread, "/syscall"));
  int64_t number = -1;
  if (!(file >> number) || number < 0) return {};
  const auto known = names.find(number);
  return known != names.end() ? known->second : str("system call ", number);
}

}  // namespace lockstep
