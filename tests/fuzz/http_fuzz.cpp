// Connections to a server: whatever comes, it answers in HTTP or closes, and answers the next one.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "launch/http/http_server.h"
#include "tests/fuzz/fuzz.h"

using namespace lockstep;

namespace {

std::string ask(uint16_t port, std::string_view bytes, bool half_close) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  fuzz::expect(::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof address) == 0, "no connection");
  const timeval patience{5, 0};
  ::setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  for (size_t sent = 0; sent < bytes.size();) {
    const ssize_t n = ::send(socket, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<size_t>(n);
  }
  if (half_close) ::shutdown(socket, SHUT_WR);
  std::string out;
  char part[4096];
  for (ssize_t n; (n = ::recv(socket, part, sizeof part, 0)) > 0;) out.append(part, static_cast<size_t>(n));
  ::close(socket);
  return out;
}

}  // namespace

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t capacity, unsigned seed) {
  static const std::vector<std::string_view> words{"GET / HTTP/1.1\r\n",
                                                   "POST /x HTTP/1.0\r\n",
                                                   "Host: localhost\r\n",
                                                   "Content-Length: 3\r\n",
                                                   "Content-Length: 99999999999999999999\r\n",
                                                   "Transfer-Encoding: chunked\r\n",
                                                   "Content-Type: application/json\r\n",
                                                   "Connection: close\r\n",
                                                   "Connection: keep-alive\r\n",
                                                   "Expect: 100-continue\r\n",
                                                   "Upgrade: h2c\r\n",
                                                   "\r\n",
                                                   "\n",
                                                   " ",
                                                   ":",
                                                   "\r\n\r\n",
                                                   "3\r\nabc\r\n",
                                                   "0\r\n\r\n",
                                                   "fffffffffffffff\r\n",
                                                   "0;a=b\r\n",
                                                   "HTTP/1.1",
                                                   "HTTP/9.9",
                                                   "OPTIONS * HTTP/1.1\r\n",
                                                   "Origin: null\r\n"};
  return fuzz::mutate_with_words(data, size, capacity, seed, words);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static HttpServer server(
      {.most_head = 1024, .most_body = 4096, .head_seconds = 2, .body_seconds = 2},
      [](const std::shared_ptr<HttpExchange>& exchange) {
        const HttpRequest& r = exchange->request();
        fuzz::expect(r.path.starts_with('/') && r.body.size() <= 4096, "a request that should have been refused");
        exchange->reply({200, "text/plain", r.body, {}});
      },
      "fuzz");
  static const auto port = static_cast<uint16_t>(std::stoi(server.url().substr(server.url().rfind(':') + 1)));
  const std::string reply = ask(port, fuzz::text_of(data, size), true);
  fuzz::expect(reply.empty() || reply.starts_with("HTTP/1.1 ") || reply.starts_with("HTTP/1.0 "),
               "a reply that is no HTTP");
  return 0;
}
