#include "launch/process/control.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>
#include <memory>
#include <utility>

#include "core/base/system_call.h"
#include "launch/process/unix_socket.h"

namespace lockstep {
namespace {

constexpr size_t kMostQueued = 16 << 20, kManyQueued = 1 << 20;

[[noreturn]] void cannot(const std::string& what, const std::string& address) {
  throw Error(ExitCode::kRankLost, str("cannot ", what, " ", address, ": ", std::strerror(errno)));
}

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;
Addresses resolve(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int error = ::getaddrinfo(host.c_str(), port.empty() ? nullptr : port.c_str(), &hints, &found);
  require(error == 0, ExitCode::kMissingInput, "the host ", host, " is unknown: ", gai_strerror(error));
  return {found, freeaddrinfo};
}

std::string address_text(const sockaddr* address, socklen_t length) {
  std::array<char, 64> host{};
  if (::getnameinfo(address, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0) return "?";
  return host.data();
}

void prepare(int socket) {
  ::fcntl(socket, F_SETFL, ::fcntl(socket, F_GETFL) | O_NONBLOCK);
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
  const int yes = 1;
  ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);  // fails on a Unix socket, which needs none
}

}  // namespace

double steady_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::string random_secret() {
  std::array<unsigned char, 16> bytes{};
  check(::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()), "no random bytes");
  std::string out;
  for (unsigned char b : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += kDigits[b >> 4];
    out += kDigits[b & 15];
  }
  return out;
}

std::string listen_on(const std::string& address, Descriptor& listener) {
  if (address.starts_with("unix:")) {
    const UnixAddress at(address.substr(5));
    listener = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (!listener || ::bind(listener.number(), at.get(), at.length) != 0 || ::listen(listener.number(), 1024) != 0)
      cannot("listen on", address);
    prepare(listener.number());
    return address;
  }
  const Addresses found = resolve(address.substr(4), "");
  listener = Descriptor(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!listener || ::bind(listener.number(), found->ai_addr, found->ai_addrlen) != 0 ||
      ::listen(listener.number(), 1024) != 0)
    cannot("listen on", address);
  prepare(listener.number());
  sockaddr_storage bound{};
  socklen_t length = sizeof bound;
  if (::getsockname(listener.number(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) cannot("listen on", address);
  const int port = ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bound)->sin6_port
                                                     : reinterpret_cast<const sockaddr_in*>(&bound)->sin_port);
  return str(address, ":", port);
}

Descriptor connect_to(const std::string& address, double seconds, const std::function<bool()>& give_up) {
  constexpr double kRefused = 1;  // the launcher listens before it starts anything: where nobody does, it is gone
  double end = steady_now() + seconds;
  for (bool refused = false;;) {
    Descriptor socket;
    bool done = false;
    if (address.starts_with("unix:")) {
      const UnixAddress at(address.substr(5));
      socket = Descriptor(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
      done = socket && ::connect(socket.number(), at.get(), at.length) == 0;
      require(!done || is_of_this_user(socket.number()), ExitCode::kRankLost, "at ", address,
              " another user's process listens in place of the launcher");
    } else {
      const size_t colon = address.rfind(':');
      require(address.starts_with("tcp:") && colon > 4, ExitCode::kUsage, "'", address,
              "' is not the address of a job");
      const Addresses found = resolve(address.substr(4, colon - 4), address.substr(colon + 1));
      socket = Descriptor(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      if (socket) {
        done = ::connect(socket.number(), found->ai_addr, found->ai_addrlen) == 0;
        pollfd ready{socket.number(), POLLOUT, 0};
        if (!done && errno == EINPROGRESS && ::poll(&ready, 1, 1000) == 1) {
          int error = 0;
          socklen_t length = sizeof error;
          ::getsockopt(socket.number(), SOL_SOCKET, SO_ERROR, &error, &length);
          errno = error;
          done = error == 0;
        }
      }
    }
    if (done) {
      prepare(socket.number());
      return socket;
    }
    if ((errno == ECONNREFUSED || errno == ENOENT) && !std::exchange(refused, true))
      end = std::min(end, steady_now() + kRefused);
    if (steady_now() >= end || (give_up && give_up())) cannot("reach the launcher at", address);
    ::usleep(50'000);
  }
}

std::string local_address_towards(const std::string& host) {
  const Addresses found = resolve(host, "9");
  const Descriptor socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t length = sizeof own;
  // Connecting a datagram socket sends nothing; it only chooses the route.
  require_done(socket && ::connect(socket.number(), found->ai_addr, found->ai_addrlen) == 0 &&
                   ::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&own), &length) == 0,
               ExitCode::kRankLost, "there is no route to the host ", host);
  return address_text(reinterpret_cast<const sockaddr*>(&own), length);
}

Descriptor accept_from(const Descriptor& listener, std::string& peer) {
  sockaddr_storage from{};
  socklen_t length = sizeof from;
  Descriptor socket(::accept(listener.number(), reinterpret_cast<sockaddr*>(&from), &length));
  if (!socket) return socket;
  if (from.ss_family == AF_UNIX && !is_of_this_user(socket.number())) return accept_from(listener, peer);
  prepare(socket.number());
  peer = from.ss_family == AF_UNIX ? "a process of this machine"
                                   : address_text(reinterpret_cast<const sockaddr*>(&from), length);
  return socket;
}

Connection::Connection(Descriptor socket, std::string peer) : socket_(std::move(socket)), peer_(std::move(peer)) {}

bool Connection::receive(std::vector<JsonObject>& out) {
  std::array<char, 1 << 16> buffer;
  while (!closed_) {
    const ssize_t n = ::recv(socket_.number(), buffer.data(), buffer.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (n <= 0) {
      closed_ = true;
      if (n < 0) problem_ = std::strerror(errno);
      break;
    }
    input_.append(buffer.data(), static_cast<size_t>(n));
    received_ += n;
    if (input_.size() > 4 * limit_ && input_.find('\n') == std::string::npos) break;
  }
  size_t begin = 0;
  for (size_t end; problem_.empty() && (end = input_.find('\n', begin)) != std::string::npos; begin = end + 1) {
    auto message =
        end - begin <= limit_ ? parse_json_object(std::string_view(input_).substr(begin, end - begin)) : std::nullopt;
    if (message) out.push_back(std::move(*message));
    else problem_ = "it sent what is no message";
  }
  input_.erase(0, begin);
  if (input_.size() > limit_) problem_ = "it sent a message that is too long";
  if (!problem_.empty()) closed_ = true;
  return !closed_;
}

void Connection::send(const JsonObject& message) {
  if (closed_) return;
  if (queue_.size() > kManyQueued && text_of(message, "type") == "out") return;
  queue_ += json_line(message);
  queue_ += '\n';
  if (queue_.size() > kMostQueued) {
    closed_ = true;
    problem_ = "it does not read what is sent to it";
    return;
  }
  flush();
}

void Connection::flush() {
  while (!closed_ && !queue_.empty()) {
    const ssize_t n = ::send(socket_.number(), queue_.data(), queue_.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (n < 0) {
      queue_.clear();  // what the peer sent before it left can still be read
      return;
    }
    queue_.erase(0, static_cast<size_t>(n));
  }
}

}  // namespace lockstep
