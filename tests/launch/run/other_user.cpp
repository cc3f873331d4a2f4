// What another user of the machine can do to a job: drops to `nobody` and tries. Prints a line for each attempt,
// "refused: ..." or "SUCCEEDED: ...". Exit code 77 where it cannot become another user, 1 where an attempt succeeded.
//   other_user attempt FOLDER PROCESS...
//       on these processes, the job's sockets, its shared memory and what lies in FOLDER
//   other_user take PROCESS...
//       takes the names of these memory holders as soon as they are free and answers as a holder does; prints "ready"
//       once it knows them, and the number of descriptors that it was given; until its input ends
#include <fcntl.h>
#include <grp.h>
#include <poll.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cinttypes>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "launch/process/unix_socket.h"
#include "launch/recovery/held_memory.h"

using namespace lockstep;
namespace fs = std::filesystem;

namespace {

constexpr uid_t kNobody = 65534;
int succeeded = 0;

void tell(bool success, const std::string& what) {
  std::printf("%s: %s\n", success ? "SUCCEEDED" : "refused", what.c_str());
  succeeded += success ? 1 : 0;
}

// The abstract names of these processes' sockets that begin so, with their types (1: stream, 5: packets). For root.
std::map<std::string, int> names_of(char** processes, const std::string& begin) {
  std::set<std::string> sockets;  // "socket:[INODE]"
  std::error_code error;
  for (; *processes; ++processes)
    for (const auto& entry : fs::directory_iterator(str("/proc/", *processes, "/fd"), error))
      sockets.insert(fs::read_symlink(entry.path(), error).string());
  std::map<std::string, int> out;
  std::ifstream list("/proc/net/unix");
  for (std::string line; std::getline(list, line);) {
    const size_t at = line.find(" @" + begin);
    unsigned type = 0;
    uint64_t inode = 0;
    if (at == line.npos || std::sscanf(line.c_str(), "%*[^:]: %*x %*x %*x %x %*x %" SCNu64, &type, &inode) != 2)
      continue;
    if (sockets.contains(str("socket:[", inode, "]"))) out.emplace(line.substr(at + 2), static_cast<int>(type));
  }
  return out;
}

Descriptor connected(const std::string& name, int type) {
  const UnixAddress address("@" + name);
  Descriptor socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const timeval limit{1, 0};
  ::setsockopt(socket.number(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  if (::connect(socket.number(), address.get(), address.length) != 0) return Descriptor();
  return socket;
}

void try_sockets(const std::map<std::string, int>& names) {
  for (const auto& [name, type] : names) {
    const UnixAddress address("@" + name);
    Descriptor own(::socket(AF_UNIX, type, 0));
    tell(::bind(own.number(), address.get(), address.length) == 0, "to take the name of a socket");
    for (const char* words : {"all", "id", "put 1/0", "{\"type\":\"hello\"}\n"}) {
      const Descriptor socket = connected(name, type);
      std::string answer;
      Descriptor file;
      const bool heard = socket && send_message(socket.number(), words) &&
                         receive_message(socket.number(), answer, file) && !answer.empty();
      tell(heard || file, str("to talk to a ", type == SOCK_STREAM ? "launcher" : "memory holder"));
    }
  }
}

void try_process(pid_t process) {
  const std::string proc = str("/proc/", static_cast<int64_t>(process));
  for (const char* file : {"mem", "environ", "maps"})
    tell(Descriptor(::open((proc + "/" + file).c_str(), O_RDONLY)).number() >= 0, str("to read /proc/N/", file));
  tell(Descriptor(::open((proc + "/mem").c_str(), O_RDWR)).number() >= 0, "to write /proc/N/mem");
  bool opened = false, taken = false;
  const int whole = static_cast<int>(::syscall(SYS_pidfd_open, process, 0));
  for (int i = 0; i < 64; ++i) {
    opened |= Descriptor(::open(str(proc, "/fd/", i).c_str(), O_RDONLY | O_NONBLOCK)).number() >= 0;
    taken |= whole >= 0 && Descriptor(static_cast<int>(::syscall(SYS_pidfd_getfd, whole, i, 0))).number() >= 0;
  }
  if (whole >= 0) ::close(whole);
  tell(opened, "to open a descriptor below /proc/N/fd");
  tell(taken, "to take a descriptor by pidfd_getfd");
  char here[8];
  iovec to{here, sizeof here}, from{&succeeded, sizeof here};
  tell(::process_vm_readv(process, &to, 1, &from, 1, 0) > 0 || errno == EFAULT, "to read memory by process_vm_readv");
  tell(::ptrace(PTRACE_SEIZE, process, nullptr, nullptr) == 0, "to trace");
  tell(::kill(process, SIGTERM) == 0, "to send a signal");
}

// Files that other users may read are no secret of lockstep's: the user's umask decides. Nobody else changes one.
void try_file(const fs::path& file) {
  const std::string name = file.filename().string();
  tell(Descriptor(::open(file.c_str(), O_WRONLY | O_NONBLOCK)).number() >= 0, "to open for writing " + name);
  tell(::unlink(file.c_str()) == 0 || ::rmdir(file.c_str()) == 0, "to remove " + name);
}
void try_folder(const fs::path& folder) {
  tell(Descriptor(::open((folder / "new").c_str(), O_CREAT | O_WRONLY, 0600)).number() >= 0, "to make a file in it");
  std::error_code error;
  const auto options = fs::directory_options::skip_permission_denied;
  for (fs::recursive_directory_iterator it(folder, options, error), end; !error && it != end; it.increment(error))
    try_file(it->path());
}
void try_temporary_files(const fs::path& folder) {
  for (const fs::directory_entry& entry : fs::directory_iterator(folder)) {
    if (!entry.path().filename().string().starts_with("lockstep")) continue;
    try_file(entry.path());
    if (entry.is_directory()) try_folder(entry.path());
  }
}

int take(const std::map<std::string, int>& names) {
  std::map<std::string, Descriptor> listeners;
  std::vector<Descriptor> peers;
  int files = 0;
  for (const auto& [name, type] : names) listeners.try_emplace(name);
  std::printf("ready\n");
  std::fflush(stdout);
  for (;;) {
    std::vector<pollfd> all{{STDIN_FILENO, POLLIN, 0}};
    for (auto& [name, listener] : listeners) {
      if (!listener) {
        const UnixAddress address("@" + name);
        Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (::bind(socket.number(), address.get(), address.length) != 0 || ::listen(socket.number(), 64) != 0) continue;
        listener = std::move(socket);
        std::printf("taken\n");
        std::fflush(stdout);
      }
      for (Descriptor peer(::accept(listener.number(), nullptr, nullptr)); peer;
           peer = Descriptor(::accept(listener.number(), nullptr, nullptr)))
        peers.push_back(std::move(peer));
    }
    for (const Descriptor& p : peers) all.push_back({p.number(), POLLIN, 0});
    ::poll(all.data(), all.size(), 2);
    if (all[0].revents != 0) break;
    for (size_t i = peers.size(); i-- > 0;) {
      if (all[1 + i].revents == 0) continue;
      std::string text;
      Descriptor file;
      const bool there = receive_message(peers[i].number(), text, file) && send_message(peers[i].number(), "done");
      files += file ? 1 : 0;
      if (!there) peers.erase(peers.begin() + static_cast<ptrdiff_t>(i));
    }
  }
  std::printf("%d descriptors\n", files);
  return files > 0 ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  const bool takes = what == "take";
  if (argc < (takes ? 3 : 4) || (!takes && what != "attempt")) return 64;
  const std::map<std::string, int> names = names_of(argv + (takes ? 2 : 3), takes ? "lockstep-memory-" : "lockstep-");
  if (::geteuid() != 0 || ::setgroups(0, nullptr) != 0 || ::setresgid(kNobody, kNobody, kNobody) != 0 ||
      ::setresuid(kNobody, kNobody, kNobody) != 0)
    return 77;
  if (takes) return take(names);
  try_sockets(names);
  for (int i = 3; i < argc; ++i) try_process(std::atoi(argv[i]));
  try_folder(argv[2]);
  try_temporary_files("/dev/shm");
  try_temporary_files(fs::temp_directory_path());
  return succeeded > 0 ? 1 : 0;
}
