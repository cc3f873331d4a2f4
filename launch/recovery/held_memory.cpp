#include "launch/recovery/held_memory.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <sstream>

#include "core/base/error.h"
#include "core/base/host.h"
#include "launch/process/unix_socket.h"

namespace lockstep {
namespace {

constexpr size_t kLongest = 4096;  // bytes of a message
constexpr int kAnswer = 10;        // seconds until an answer must be there

[[noreturn]] void holder_is_gone(const std::string& what) {
  const int error = errno;
  throw Error(ExitCode::kRankLost, str("the process that holds the state in memory on ", host_name(), " (", what,
                                       "): ", error ? std::strerror(error) : "it has ended"));
}

Descriptor connect_once(const std::string& name) {
  const UnixAddress address("@" + name);
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!socket || ::connect(socket.number(), address.get(), address.length) != 0) return Descriptor();
  if (!is_of_this_user(socket.number())) {
    errno = EACCES;
    return Descriptor();
  }
  const timeval limit{kAnswer, 0};
  ::setsockopt(socket.number(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(socket.number(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return socket;
}

}  // namespace

std::vector<std::string> memory_holder_names() {
  const char* given = std::getenv(kMemoryHolder);
  const std::string text = given ? given : "";
  std::istringstream names(text.substr(0, text.find(' ')));
  std::vector<std::string> out;
  for (std::string name; std::getline(names, name, ',');) out.push_back(name);
  return out;
}

bool send_message(int socket, std::string_view text, int file) {
  iovec part{const_cast<char*>(text.data()), text.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (file >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* c = CMSG_FIRSTHDR(&message);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(c), &file, sizeof file);
  }
  ssize_t n = -1;
  do n = ::sendmsg(socket, &message, MSG_NOSIGNAL);
  while (n < 0 && errno == EINTR);
  return n == static_cast<ssize_t>(text.size());
}

bool receive_message(int socket, std::string& text, Descriptor& file) {
  std::array<char, kLongest> bytes;
  iovec part{bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t n = -1;
  do n = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  while (n < 0 && errno == EINTR);
  if (n == 0) errno = 0;
  file = Descriptor();
  if (n <= 0) return false;
  for (cmsghdr* c = CMSG_FIRSTHDR(&message); c; c = CMSG_NXTHDR(&message, c))
    if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(c), sizeof number);
      file = Descriptor(number);
    }
  text.assign(bytes.data(), static_cast<size_t>(n));
  return true;
}

HeldMemory HeldMemory::connect(const std::vector<std::string>& names, double seconds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(seconds);
  for (;;) {
    for (const std::string& name : names) {
      Descriptor socket = connect_once(name);
      if (!socket) continue;
      HeldMemory held(std::move(socket));
      std::string id;
      Descriptor none;  // a holder may end just now, and another go on
      if (send_message(held.number(), "id") && receive_message(held.number(), id, none)) {
        held.id_ = std::move(id);
        return held;
      }
    }
    if (std::chrono::steady_clock::now() >= end) holder_is_gone("connecting to it");
    ::usleep(5'000);
  }
}

void HeldMemory::ask(const std::string& what, const Descriptor& file) {
  std::string answer;
  Descriptor none;
  if (!send_message(socket_.number(), what, file.number()) || !receive_message(socket_.number(), answer, none))
    holder_is_gone(what);
}

void HeldMemory::put(const std::string& name, const Descriptor& file) { ask("put " + name, file); }
void HeldMemory::drop(const std::string& name) { ask("drop " + name, Descriptor()); }

std::vector<std::pair<std::string, Descriptor>> HeldMemory::all() {
  std::vector<std::pair<std::string, Descriptor>> out;
  if (!send_message(socket_.number(), "all")) holder_is_gone("all");
  for (;;) {
    std::string name;
    Descriptor file;
    if (!receive_message(socket_.number(), name, file)) holder_is_gone("all");
    if (!file) return out;  // the last message has none
    out.emplace_back(std::move(name), std::move(file));
  }
}

bool HeldMemory::lost() const {
  pollfd p{socket_.number(), POLLIN | POLLRDHUP, 0};
  return ::poll(&p, 1, 0) > 0;  // it says nothing by itself
}

}  // namespace lockstep
