#include "launch/http/metrics_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <charconv>

#include "core/base/error.h"
#include "core/base/system_call.h"
#include "launch/process/control.h"

namespace lockstep {
namespace {

constexpr double kPatience = 2;         // seconds for a whole request and its answer: one client at a time
constexpr size_t kMostAsked = 1 << 13;  // bytes of a request

int left_ms(double end) { return static_cast<int>(std::max(0.0, 1e3 * (end - steady_now()))); }

bool ready(int socket, short events, double end) {
  pollfd p{socket, events, 0};
  return ::poll(&p, 1, left_ms(end)) == 1;
}

}  // namespace

MetricsServer::MetricsServer(const std::string& place, std::function<std::string()> text) : text_(std::move(text)) {
  const size_t colon = place.rfind(':');
  const std::string host = colon == place.npos ? "127.0.0.1" : place.substr(0, colon),
                    digits = colon == place.npos ? place : place.substr(colon + 1);
  uint16_t port = 0;
  const auto [at, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  require(error == std::errc() && at == digits.data() + digits.size() && !digits.empty() &&
              ::inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1,
          ExitCode::kUsage, "--metrics-port ", place, ": must be a port, such as 9400, or ADDRESS:PORT");
  address.sin_port = htons(port);
  listener_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  socklen_t length = sizeof address;
  const bool listens = listener_ && ::setsockopt(listener_.number(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       ::bind(listener_.number(), reinterpret_cast<sockaddr*>(&address), length) == 0 &&
                       ::listen(listener_.number(), 16) == 0 &&
                       ::getsockname(listener_.number(), reinterpret_cast<sockaddr*>(&address), &length) == 0;
  require_done(listens, ExitCode::kUsage, "--metrics-port ", place, ": cannot listen there");
  url_ = str("http://", host, ":", ntohs(address.sin_port), "/metrics");
  thread_ = std::thread([this] { serve(); });
}

MetricsServer::~MetricsServer() {
  ends_ = true;
  ::shutdown(listener_.number(), SHUT_RDWR);
  thread_.join();
}

void MetricsServer::serve() {
  while (!ends_) {
    if (!ready(listener_.number(), POLLIN, steady_now() + 0.5)) continue;
    const Descriptor client(::accept4(listener_.number(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (client && !ends_) answer(client);
  }
}

void MetricsServer::answer(const Descriptor& client) const {
  const double end = steady_now() + kPatience;
  std::string asked;
  while (asked.find("\r\n\r\n") == asked.npos && asked.find("\n\n") == asked.npos) {
    if (asked.size() > kMostAsked || !ready(client.number(), POLLIN, end)) return;
    char piece[1024];
    const ssize_t got = ::recv(client.number(), piece, sizeof piece, 0);
    if (got <= 0) return;
    asked.append(piece, static_cast<size_t>(got));
  }
  const std::string line = asked.substr(0, asked.find_first_of("\r\n"));
  const size_t space = line.find(' '), query = line.find_first_of(" ?", space + 1);
  const std::string method = line.substr(0, space),
                    path = space == line.npos ? "" : line.substr(space + 1, query - space - 1);
  std::string status = "200 OK", body;
  if (method != "GET" && method != "HEAD") status = "405 Method Not Allowed";
  else if (path != "/metrics") status = "404 Not Found", body = "the metrics are at /metrics\n";
  else try {
      body = text_();
    } catch (const std::exception& e) {
      status = "503 Service Unavailable";
      body = str(e.what(), "\n");
    }
  std::string reply = str("HTTP/1.1 ", status,
                          "\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\nContent-Length: ", body.size(),
                          "\r\nConnection: close\r\n\r\n");
  if (method != "HEAD") reply += body;
  for (size_t sent = 0; sent < reply.size();) {
    if (!ready(client.number(), POLLOUT, end)) return;
    const ssize_t n = ::send(client.number(), reply.data() + sent, reply.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
  ::shutdown(client.number(), SHUT_WR);
}

}  // namespace lockstep
