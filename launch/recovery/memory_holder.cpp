#include "launch/recovery/memory_holder.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <map>
#include <sstream>
#include <vector>

#include "core/base/host.h"
#include "core/base/log.h"
#include "core/base/system_call.h"
#include "launch/process/child_process.h"
#include "launch/process/control.h"
#include "launch/process/unix_socket.h"

namespace lockstep {
namespace {

constexpr double kStart = 10;          // seconds until a holder must have reached the launcher
constexpr double kReady = 12;          // and until it answers
constexpr double kListens = 2;         // seconds within which a process that has bound a name listens at it
constexpr int kNames = 4;              // of a job's holders, of which other users may take all but the last
constexpr size_t kMostHolders = 4096;  // that the launcher has connections of
constexpr double kAgain = 0.2;         // seconds between attempts to start a twin
constexpr size_t kMostFiles = 65536;   // that it keeps

constexpr const char* kBySlurm = "slurm";

struct Place {
  std::string names, address;
  double silence = 10;
  bool step_of_its_own = false;  // a step of Slurm starts it
};

Place place_of_environment() {
  const char* given = std::getenv(kMemoryHolder);
  Place p;
  std::istringstream words(given ? given : "");
  require(bool(words >> p.names >> p.address >> p.silence), ExitCode::kUsage,
          "`lockstep agent` is started by `lockstep launch` only");
  std::string by;
  p.step_of_its_own = words >> by && by == kBySlurm;
  return p;
}

// A machine that is gone closes no connection: it is asked for a sign of life, and counts as gone after twice the time
// that the launcher gives a machine.
void watch_machine_of(const Descriptor& launcher, double silence) {
  const int yes = 1, idle = std::max(1, static_cast<int>(silence)), every = std::max(1, idle / 4), times = 4;
  ::setsockopt(launcher.number(), SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
  ::setsockopt(launcher.number(), IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
  ::setsockopt(launcher.number(), IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
  ::setsockopt(launcher.number(), IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

bool is_closed(const Descriptor& peer) {
  char ignored[64];
  const ssize_t n = ::recv(peer.number(), ignored, sizeof ignored, MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

class MemoryHolder {
 public:
  MemoryHolder(Descriptor listener, Descriptor launcher)
      : listener_(std::move(listener)), launcher_(std::move(launcher)), id_(random_secret()) {}

  // Never returns: ends this process when the launcher has ended.
  [[noreturn]] void run() {
    for (;;) {
      if (!twin_ && steady_now() - tried_ > kAgain) start_twin();
      std::vector<pollfd> all{{launcher_.number(), POLLIN, 0}, {listener_.number(), POLLIN, 0}};
      all.push_back({twin_.number(), POLLIN, 0});
      const size_t first = all.size();
      for (const Descriptor& p : peers_) all.push_back({p.number(), POLLIN, 0});
      if (::poll(all.data(), all.size(), twin_ ? -1 : static_cast<int>(1e3 * kAgain)) < 0) continue;
      if (all[0].revents != 0 && launcher_is_gone()) ::_exit(0);
      for (size_t i = peers_.size(); i-- > 0;)
        if (all[first + i].revents != 0 && !serve(peers_[i])) peers_.erase(peers_.begin() + static_cast<ptrdiff_t>(i));
      if (twin_ && all[2].revents != 0) twin_ = Descriptor();  // it says nothing: it has ended
      if (all[1].revents != 0) accept();
    }
  }

 private:
  // The twin: a second process that has all that this one has, and goes on in its place where this one is killed.
  void start_twin() {
    int ends[2];
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) return;
    twin_ = Descriptor(ends[0]);
    Descriptor other(ends[1]);
    limit_answers(twin_);
    tried_ = steady_now();
    const pid_t child = ::fork();
    if (child < 0) twin_ = Descriptor();
    if (child != 0) return;
    twin_ = std::move(other);
    other = Descriptor();  // the holder's end, whose closing this process must see
    peers_.clear();
    while (follow()) continue;
    twin_ = Descriptor();  // from here on this process is the holder
    tried_ = -kAgain;
  }

  // The twin does what the holder did. Returns false once that has ended.
  bool follow() {
    std::array<pollfd, 2> all{{{twin_.number(), POLLIN, 0}, {launcher_.number(), POLLIN, 0}}};
    if (::poll(all.data(), all.size(), -1) < 0) return true;
    if (all[1].revents != 0 && launcher_is_gone()) ::_exit(0);
    if (all[0].revents == 0) return true;
    std::string text;
    Descriptor file;
    if (!receive_message(twin_.number(), text, file)) return false;
    change(text, std::move(file));
    return true;
  }

  void accept() {
    Descriptor peer(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!peer || !is_of_this_user(peer.number())) return;
    limit_answers(peer);
    peers_.push_back(std::move(peer));
  }

  // A rank that reads no answer, as one that is stopped, must not stop the others.
  static void limit_answers(const Descriptor& peer) {
    const timeval limit{1, 0};
    ::setsockopt(peer.number(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  }

  bool launcher_is_gone() const { return is_closed(launcher_); }

  // Returns false where the peer is gone.
  bool serve(const Descriptor& peer) {
    std::string text;
    Descriptor file;
    if (!receive_message(peer.number(), text, file)) return false;
    if (text == "id") return send_message(peer.number(), id_);
    if (text == "all") {
      for (const auto& [name, held] : files_)
        if (!send_message(peer.number(), name, held.number())) return false;
      return send_message(peer.number(), "end");
    }
    // The twin has it before the rank hears so.
    if (twin_ && !send_message(twin_.number(), text, file.number())) twin_ = Descriptor();
    return change(text, std::move(file)) && send_message(peer.number(), "done");
  }

  bool change(const std::string& text, Descriptor file) {
    if (text.starts_with("put ") && file && files_.size() < kMostFiles)
      files_.insert_or_assign(text.substr(4), std::move(file));
    else if (text.starts_with("drop ")) files_.erase(text.substr(5));
    else return false;
    return true;
  }

  Descriptor listener_, launcher_, twin_;
  const std::string id_;
  double tried_ = -kAgain;  // when a twin was started
  std::vector<Descriptor> peers_;
  std::map<std::string, Descriptor> files_;
};

// At the first name that no other user has taken. Nothing where a holder of this user has one.
Descriptor listen_at_first_free(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const UnixAddress address("@" + name);
    const double begun = steady_now();
    do {
      Descriptor listener(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      if (listener && ::bind(listener.number(), address.get(), address.length) == 0 &&
          ::listen(listener.number(), 1024) == 0)
        return listener;
      require_done(listener && errno == EADDRINUSE, ExitCode::kRankLost, "the memory holder cannot listen on ",
                   host_name());
      const Descriptor there(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
      if (there && ::connect(there.number(), address.get(), address.length) == 0) {
        if (is_of_this_user(there.number())) return Descriptor();
        break;
      }
      ::usleep(5'000);  // it is bound, and does not listen yet; or is free again
    } while (steady_now() - begun < kListens);
  }
  throw Error(ExitCode::kRankLost,
              str("other users' processes on ", host_name(), " have taken every name of this job's memory holder"));
}

// This process alone goes on: nothing of who started it stays open, and no signal of theirs reaches it.
void become_independent(Descriptor& listener, Descriptor& launcher) {
  ::setsid();
  for (int s : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGPIPE, SIGCHLD}) std::signal(s, SIG_IGN);
  (void)!::chdir("/");
  const int nowhere = ::open("/dev/null", O_RDWR);
  for (int standard : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) ::dup2(nowhere, standard);
  const int most = static_cast<int>(::sysconf(_SC_OPEN_MAX));
  for (int i = 3; i < std::min(most, 1 << 16); ++i)
    if (i != listener.number() && i != launcher.number()) ::close(i);
}

}  // namespace

MemoryHolders::MemoryHolders(const std::string& other, double silence, const std::vector<std::string>& nodes) {
  const std::string own = other.empty() ? str("unix:@lockstep-", random_secret()) : str("tcp:", other);
  const std::string address = listen_on(own, listener_);
  for (int i = 0; i < kNames; ++i) environment_ += str(i == 0 ? "" : ",", "lockstep-memory-", random_secret());
  environment_ += str(" ", address, " ", silence);
  if (nodes.empty()) return;
  environment_ += str(" ", kBySlurm);
  std::string list;
  for (const std::string& node : nodes) list += (list.empty() ? "" : ",") + node;
  const auto count = std::to_string(nodes.size());
  // Beside the job's other steps, with none of its share of the machines; a machine that is lost ends it nowhere else.
  start_child({.command = {"srun", "--overlap", "--no-kill", "--kill-on-bad-exit=0", "--mem=0", "--export=ALL",
                           "--quiet", "--nodes=" + count, "--ntasks=" + count, "--ntasks-per-node=1",
                           "--nodelist=" + list, program_path(), "agent", "--hold", "--stay"},
               .output = STDERR_FILENO,
               .errors = STDERR_FILENO,
               .environment = {{kMemoryHolder, environment_}}});
}

// Whoever connects hears nothing; one that says something, or has ended, is let go.
void MemoryHolders::look() {
  std::erase_if(connected_, [](const Descriptor& d) {
    pollfd p{d.number(), POLLIN, 0};
    return ::poll(&p, 1, 0) > 0;
  });
  std::string peer;
  while (connected_.size() < kMostHolders) {
    Descriptor one = accept_from(listener_, peer);
    if (!one) return;
    connected_.push_back(std::move(one));
  }
}

std::optional<HeldMemory> memory_holder_of_machine() {
  const std::vector<std::string> names = memory_holder_names();
  if (names.empty()) return {};
  try {
    return HeldMemory::connect(names, place_of_environment().step_of_its_own ? kReady : 0);
  } catch (const Error&) {  // there is none yet
    if (place_of_environment().step_of_its_own)
      log_warning(str("the memory holder that srun was to start on ", host_name(),
                      " does not answer: it is started here, and ",
                      "Slurm may end it with a failed attempt, after which the run goes on from disk"));
  }
  const pid_t child = start_child({.command = {program_path(), "agent", "--hold"},
                                   .output = STDERR_FILENO,
                                   .errors = STDERR_FILENO,
                                   .end_with_parent = SIGKILL});
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  return HeldMemory::connect(names, kReady);
}

int run_memory_holder(bool stays) {
  const Place place = place_of_environment();
  Descriptor launcher = connect_to(place.address, kStart);
  watch_machine_of(launcher, place.silence);
  Descriptor listener = listen_at_first_free(memory_holder_names());
  if (!listener) return 0;  // another agent of this machine was first
  const pid_t child = ::fork();
  require_done(child >= 0, ExitCode::kDevice, "cannot start the memory holder");
  if (child > 0) {
    listener = Descriptor();
    // A step of Slurm ends, with all that it has started, when the process ends that was started first.
    while (stays && !is_closed(launcher)) {
      pollfd p{launcher.number(), POLLIN, 0};
      ::poll(&p, 1, 1000);
    }
    return 0;
  }
  become_independent(listener, launcher);
  MemoryHolder(std::move(listener), std::move(launcher)).run();
}

}  // namespace lockstep
